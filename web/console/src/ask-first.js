/** Asks before an action that cannot be undone, with the browser's own dialog, so that the keyboard and Escape work. */
import { element } from "../../design/element.js";

/** @param {string} question @param {string} more @param {string} yes what is done @returns {Promise<boolean>} */
export function askFirst(question, more, yes) {
  return new Promise((settle) => {
    const title = element("h2", { id: "question", text: question });
    const no = element("button", { type: "button", className: "button", text: "Cancel", autofocus: true, onclick: () => dialog.close() });
    const act = element("button", { type: "button", className: "button primary", text: yes, onclick: () => dialog.close("yes") });
    const dialog = element("dialog", { className: "question", aria: { labelledby: "question" } }, title, element("p", { className: "note", text: more }), element("div", { className: "row" }, act, no));
    dialog.addEventListener("close", () => {
      dialog.remove();
      settle(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
