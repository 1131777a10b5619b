/**
 * Toasts: a bounded stack of notices, read out politely, dismissable, gone by themselves unless someone looks at them.
 *
 * In: `show`. Out: elements in the stack's own live region. A burst never grows the stack: the oldest give way and are
 * counted in a line that says how many. A toast that is dismissed hands the focus on: to the next one for who uses the
 * keyboard, else to where it was before.
 */
import { element } from "./element.js";
import { Expiring } from "./expiring.js";

const MAX_SHOWN = 4;
const SHOWN_FOR_MS = 9000;

export class Toasts {
  #stack;
  #rest;
  #shown;
  #more = 0;

  /** @param {HTMLElement} root */
  constructor(root) {
    this.#rest = element("button", { type: "button", className: "rest", hidden: true });
    this.#rest.addEventListener("click", () => {
      this.#shown.handOn();
      this.clear();
    });
    this.#stack = element("div", { role: "log", className: "stack", aria: { live: "polite", label: "Latest notifications" } });
    root.append(this.#rest, this.#stack);
    // A button that was clicked has the focus too, but nobody is on the way from it to the next.
    this.#shown = new Expiring(root, SHOWN_FOR_MS, ":focus-visible", (toast) => this.#remove(toast));
  }

  /**
   * @param {{ title: string, detail: string, status?: string, topic?: string }} words all of it text
   */
  show({ title, detail, status = "", topic = "" }) {
    const close = element("button", { type: "button", className: "icon", text: "×", aria: { label: `Dismiss: ${title}` } });
    const said = element("div", {}, element("strong", { text: title }), element("div", { className: "detail", text: detail }));
    if (topic) said.append(element("code", { className: "topic", text: topic }));
    const toast = element("div", { className: "toast", data: status ? { status } : {} }, said, close);
    close.addEventListener("click", () => {
      const next = close.matches(":focus-visible") ? (toast.nextElementSibling ?? toast.previousElementSibling) : null;
      this.#shown.handOn(next?.querySelector("button"));
      this.#remove(toast);
    });
    this.#stack.append(toast);
    this.#shown.start(toast);
    while (this.#shown.elements.length > MAX_SHOWN) {
      this.#more++;
      this.#remove(/** @type {HTMLElement} */ (this.#stack.firstElementChild));
    }
    this.#count();
  }

  /** Dismiss all. */
  clear() {
    for (const toast of this.#shown.elements) this.#remove(toast);
  }

  /** @param {HTMLElement} toast */
  #remove(toast) {
    this.#shown.stop(toast);
    toast.remove();
    if (!this.#shown.elements.length) this.#more = 0;
    this.#count();
  }

  #count() {
    this.#rest.hidden = this.#more === 0;
    this.#rest.textContent = `and ${this.#more} more before · dismiss all`;
  }
}
