/** The schemas that events are checked with, each file as a tree. */
import { element } from "../../../design/element.js";
import { counted } from "../format.js";
import { field, namespaceSelect, Outcome } from "../fields.js";
import { page, read } from "../page.js";
import { tree } from "../tree.js";

const CHECKS = /** @type {Record<string, string>} */ ({ off: "Events are not checked", warn: "Events that break a schema are let through and counted", refuse: "Events that break a schema are refused" });

export function schemas() {
  const namespace = namespaceSelect(page.namespaces);
  const outcome = new Outcome();
  const found = element("div", { className: "stack" });

  async function ask() {
    try {
      const { check, source, documents } = await read("api/schemas", { namespace: namespace.value });
      const where = !source ? "HEADGATE_SCHEMAS is not set; these are in the registry in Redis" : source === "redis" ? "from the registry in Redis" : `from the folder ${source}`;
      outcome.say(documents.length ? `${counted(documents.length, "schema")}, ${where}. ${CHECKS[check]}.` : `There are no schemas. ${CHECKS[check]}. Push some with the command headgate schemas push, or name a folder in HEADGATE_SCHEMAS.`);
      found.replaceChildren(...documents.map(document_));
    } catch (error) {
      found.replaceChildren();
      outcome.fault(error);
    }
  }

  namespace.addEventListener("change", ask);
  ask();
  const choose = page.namespaces.length > 1 ? [element("div", { className: "fields" }, field("Namespace", namespace))] : [];
  return { root: element("div", { className: "stack" }, element("section", { className: "box form", aria: { label: "Schemas" } }, ...choose, outcome.root), found), close() {} };
}

/** @param {{ name: string, text: string }} told @param {number} nth */
function document_({ name, text }, nth) {
  const id = `schema-${nth}`;
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    value = text; // longer than a page shows
  }
  return element("section", { className: "panel", aria: { labelledby: id } }, element("div", { className: "panel-head" }, element("h2", { id, text: name.replace(/\.json$/, "") })), element("div", { className: "tree", tabIndex: 0, role: "group", aria: { labelledby: id } }, tree(value)));
}
