/** The present members of a topic, over all gateways, read again every few seconds. */
import { element } from "../../../design/element.js";
import { field, namespaceSelect, Outcome, onSend } from "../fields.js";
import { count, counted, duration } from "../format.js";
import { Grid } from "../grid.js";
import { page, read } from "../page.js";

const ASK_MS = 3000;

export function presence() {
  const namespace = namespaceSelect(page.namespaces);
  const topic = element("input", { className: "code", required: true, autocomplete: "off", spellcheck: false, placeholder: "rooms.42" });
  const outcome = new Outcome();
  const form = element(
    "form",
    { className: "form" },
    element("div", { className: "fields" }, ...(page.namespaces.length > 1 ? [field("Namespace", namespace)] : []), field("Topic", topic, true), element("button", { type: "submit", className: "button primary", text: "Show" })),
    outcome.root,
  );
  const members = new Grid("Members", [{ label: "User" }, { label: "Connections", number: true }, { label: "There for", number: true }, { label: "What the page says of them", wide: true }], "Name a topic. Pages enter one with headgate/presence.");
  let asked = "";

  async function ask() {
    if (!asked || document.hidden) return;
    try {
      const told = await read("api/presence", { topic: asked, namespace: namespace.value });
      outcome.say(`${counted(told.count, "user is", "users are")} in ${told.topic}${told.count > told.members.length ? `; the first ${count(told.members.length)} by name are shown` : ""}.`);
      const rows = told.members.map((/** @type {any} */ { user, connections, since, meta }) => ({
        key: user,
        cells: [user, count(connections), duration(Math.max(0, (Date.now() - since) / 1000)), meta === null || meta === undefined ? "" : JSON.stringify(meta)],
      }));
      members.show(rows, `Nobody is in ${told.topic}.`);
    } catch (error) {
      members.show([]);
      outcome.fault(error);
      asked = "";
    }
  }

  onSend(form, () => {
    asked = topic.value.trim();
    return ask();
  });
  const timer = setInterval(ask, ASK_MS);
  return { root: element("div", { className: "stack" }, element("section", { className: "box", aria: { label: "Choose a topic" } }, form), members.root), close: () => clearInterval(timer) };
}
