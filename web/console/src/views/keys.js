/**
 * API keys, which grant rights over HTTP. Users who have signed in with the admin key make them, and give that key again; all who may act revoke them. A key is shown
 * once. The list is read again every few seconds, because others make and revoke keys too.
 */
import { element } from "../../../design/element.js";
import { askFirst } from "../ask-first.js";
import { field, namespaceSelect, Outcome, onSend, select } from "../fields.js";
import { duration } from "../format.js";
import { Grid } from "../grid.js";
import { act, page, read } from "../page.js";

const ASK_MS = 3000;
const DAY_S = 86_400;
/** @type {[string, string][]} */
const ENDS = [[String(30 * DAY_S), "in 30 days"], [String(90 * DAY_S), "in 90 days"], [String(365 * DAY_S), "in a year"]];

export function keys() {
  const grid = new Grid("API keys", [{ label: "Name" }, { label: "Id" }, { label: "May", wide: true }, { label: "Namespaces" }, { label: "Made by" }, { label: "Ends" }, { label: "More" }], "There are no keys. Services that use the HTTP API need one, or a token.");
  const outcome = new Outcome();
  const secret = element("div");
  const root = element("div", { className: "stack" }, grid.root, grid.outcome.root, outcome.root, secret, ...(page.mayAct && page.byKey ? [form()] : []));
  const polling = grid.poll(ASK_MS, "The keys", () => read("api/keys"), (answer) => {
    grid.show(answer.keys.map((/** @type {any} */ each) => row(each, revoke)));
  });

  /** @param {any} key */
  async function revoke(key) {
    if (!(await askFirst(`Revoke the key ${key.name}?`, "Services that use it are refused within seconds. This cannot be undone.", "Revoke"))) return;
    try {
      await act("keys/revoke", { key: key.id });
      outcome.say(`The key ${key.name} is revoked.`);
      await polling.ask();
    } catch (error) {
      outcome.fault(error);
    }
  }

  function form() {
    const name = element("input", { required: true, autocomplete: "off", placeholder: "billing" });
    const scopes = element("input", { className: "code", required: true, autocomplete: "off", spellcheck: false, placeholder: "publish:orders.# read:orders.#" });
    const adminKey = element("input", { type: "password", required: true, autocomplete: "current-password" });
    const ends = select(ENDS, ENDS[1][0]);
    const namespace = namespaceSelect(page.namespaces);
    const made = new Outcome();
    const body = element(
      "form",
      { className: "form padded" },
      element("div", { className: "fields" }, field("Name", name), field("Scopes, separated by spaces", scopes, true), ...(page.namespaces.length > 1 ? [field("Namespace", namespace)] : []), field("Ends", ends), field("The admin key again", adminKey)),
      element("div", { className: "row" }, element("button", { type: "submit", className: "button primary", text: "Make a key" }), made.root),
    );
    onSend(body, async () => {
      try {
        const wanted = { name: name.value.trim(), scopes: scopes.value.trim().split(/\s+/), namespace: namespace.value, ttl_s: Number(ends.value), admin_key: adminKey.value };
        const told = await act("keys/make", wanted);
        made.say("");
        secret.replaceChildren(shown(wanted.name, told.secret));
        secret.querySelector("h2")?.focus();
        body.reset();
        await polling.ask();
      } catch (error) {
        made.fault(error);
      }
    });
    return element("section", { className: "panel", aria: { labelledby: "make-title" } }, element("div", { className: "panel-head" }, element("h2", { id: "make-title", text: "Make a key" })), body);
  }

  return { root, close: polling.close };
}

/** The secret of a new key, which is shown only once. @param {string} name @param {string} text */
function shown(name, text) {
  return element(
    "section",
    { className: "panel", aria: { labelledby: "secret-title" } },
    element("div", { className: "panel-head" }, element("h2", { id: "secret-title", tabIndex: -1, text: `The key ${name}` }), element("span", { className: "note", text: "Copy it now. It is shown only once." })),
    element("div", { className: "tree", tabIndex: 0, role: "group", aria: { labelledby: "secret-title" } }, element("code", { text })),
  );
}

/** @param {any} key @param {(key: any) => void} revoke @returns {import("../grid.js").Row} */
function row(key, revoke) {
  const left_s = key.expires_s === undefined || key.expires_s === null ? null : key.expires_s - Date.now() / 1000;
  return {
    key: key.id,
    cells: [
      key.name,
      key.id,
      key.scopes.join(" "),
      key.namespaces?.join(", ") ?? "the first",
      key.created_by || "–",
      left_s === null ? "never" : left_s > 0 ? `in ${duration(left_s)}` : { text: "has ended", tone: "quiet" },
      page.mayAct ? { buttons: [{ label: "Revoke", name: `Revoke ${key.name}, ${key.id}`, press: () => revoke(key) }] } : "",
    ],
  };
}
