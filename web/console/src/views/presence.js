/** The present members of a topic, over all gateways, read again every few seconds. */
import { element } from "../../../design/element.js";
import { field, namespaceSelect, onSend } from "../fields.js";
import { count, counted, duration } from "../format.js";
import { Grid } from "../grid.js";
import { page, read } from "../page.js";

const ASK_MS = 3000;

export function presence() {
  const namespace = namespaceSelect(page.namespaces);
  const topic = element("input", { className: "code", required: true, autocomplete: "off", spellcheck: false, placeholder: "rooms.42" });
  const members = new Grid("Members", [{ label: "User" }, { label: "Connections", number: true }, { label: "There for", number: true }, { label: "What the page says of them", wide: true }], "Name a topic. Pages enter one with headgate/presence.");
  const form = element(
    "form",
    { className: "form" },
    element("div", { className: "fields" }, ...(page.namespaces.length > 1 ? [field("Namespace", namespace)] : []), field("Topic", topic, true), element("button", { type: "submit", className: "button primary", text: "Show" })),
    members.outcome.root,
  );
  /** @type {ReturnType<typeof members.poll> | undefined} */
  let polling;

  /** @param {any} answer */
  function show(answer) {
    members.outcome.say(`${counted(answer.count, "user is", "users are")} in ${answer.topic}${answer.count > answer.members.length ? `; the first ${count(answer.members.length)} by name are shown` : ""}.`);
    const rows = answer.members.map((/** @type {any} */ { user, connections, since, meta }) => ({
      key: user,
      cells: [user, count(connections), duration(Math.max(0, (Date.now() - since) / 1000)), meta === null || meta === undefined ? "" : JSON.stringify(meta)],
    }));
    members.show(rows, `Nobody is in ${answer.topic}.`);
  }

  onSend(form, async () => {
    polling?.close();
    const asked = { topic: topic.value.trim(), namespace: namespace.value };
    members.show([], "");
    polling = members.poll(ASK_MS, "The members", () => read("api/presence", asked), show);
  });
  return { root: element("div", { className: "stack" }, element("section", { className: "box", aria: { label: "Choose a topic" } }, form), members.root), close: () => polling?.close() };
}
