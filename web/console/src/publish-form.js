/** The form to publish one event, for users who may act. The result is shown beside the button. */
import { element } from "../../design/element.js";
import { field, namespaceSelect, Outcome, onSend } from "./fields.js";
import { act, page } from "./page.js";

export function publishForm() {
  const title = element("h2", { id: "publish-title", text: "Publish an event" });
  const head = element("div", { className: "panel-head" }, title);
  if (!page.mayAct) {
    const why = page.byKey ? "You look only. HEADGATE_CONSOLE_ACTIONS=on lets those who sign in by key publish." : "You look only. Your application gives you no right to act.";
    return element("section", { className: "panel", aria: { labelledby: "publish-title" } }, head, element("p", { className: "none", text: why }));
  }
  const namespace = namespaceSelect(page.namespaces);
  const topic = element("input", { required: true, className: "code", placeholder: "orders.42.shipped", autocomplete: "off", spellcheck: false });
  const data = element("textarea", { required: true, spellcheck: false, value: "{}", rows: 4 });
  const id = element("input", { className: "code", placeholder: "generated", autocomplete: "off", spellcheck: false });
  const outcome = new Outcome();
  const form = element(
    "form",
    { className: "form padded" },
    element("div", { className: "fields" }, ...(page.namespaces.length > 1 ? [field("Namespace", namespace)] : []), field("Topic", topic, true), field("Id, for a safe repetition", id)),
    field("Data (JSON)", data),
    element("div", { className: "row" }, element("button", { type: "submit", className: "button primary", text: "Publish" }), outcome.root),
  );
  onSend(form, async () => {
    let value;
    try {
      value = JSON.parse(data.value);
      data.removeAttribute("aria-invalid");
    } catch (error) {
      data.setAttribute("aria-invalid", "true");
      data.focus();
      outcome.say(`The data is not JSON: ${/** @type {Error} */ (error).message}`, true);
      return;
    }
    try {
      const receipt = await act("publish", { namespace: namespace.value, topic: topic.value.trim(), data: value, ...(id.value.trim() && { id: id.value.trim() }) });
      outcome.say(receipt.duplicate ? `Was published before, at offset ${receipt.offset}.` : `Published at offset ${receipt.offset}.`);
    } catch (error) {
      outcome.fault(error);
    }
  });
  return element("section", { className: "panel", aria: { labelledby: "publish-title" } }, head, form);
}
