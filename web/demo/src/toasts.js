/**
 * Toasts: a bounded stack of notices, read out politely, dismissable, gone by themselves unless someone looks at them.
 *
 * In: `show`. Out: elements in the stack's own live region. A burst never grows the stack: the oldest give way and are
 * counted in a line that says how many.
 */
import { element } from "./element.js";

const MAX_SHOWN = 4;
const SHOWN_FOR_MS = 9000;

export class Toasts {
  #stack;
  #rest;
  #more = 0;
  /** @type {Map<HTMLElement, ReturnType<typeof setTimeout>>} */
  #timers = new Map();

  /** @param {HTMLElement} root */
  constructor(root) {
    this.#rest = element("button", { type: "button", className: "rest", hidden: true });
    this.#rest.addEventListener("click", () => this.clear());
    this.#stack = element("div", { role: "log", className: "stack", aria: { live: "polite", label: "Latest notifications" } });
    root.append(this.#rest, this.#stack);
    // Someone who reads, or is on the way to the close button, decides when it goes.
    for (const kind of ["pointerenter", "focusin"]) root.addEventListener(kind, () => this.#hold());
    for (const kind of ["pointerleave", "focusout"]) root.addEventListener(kind, () => this.#release());
  }

  /**
   * @param {{ title: string, detail: string, status?: string, topic?: string }} words all of it text
   */
  show({ title, detail, status = "", topic = "" }) {
    const close = element("button", { type: "button", className: "icon", text: "×", aria: { label: `Dismiss: ${title}` } });
    const said = element("div", {}, element("strong", { text: title }), element("div", { className: "detail", text: detail }));
    if (topic) said.append(element("code", { className: "topic", text: topic }));
    const toast = element("div", { className: "toast", data: status ? { status } : {} }, said, close);
    close.addEventListener("click", () => this.#remove(toast));
    this.#stack.append(toast);
    this.#timers.set(toast, this.#expire(toast));
    while (this.#timers.size > MAX_SHOWN) {
      this.#more++;
      this.#remove(/** @type {HTMLElement} */ (this.#stack.firstElementChild));
    }
    this.#count();
  }

  /** Dismiss all. */
  clear() {
    for (const toast of [...this.#timers.keys()]) this.#remove(toast);
  }

  /** @param {HTMLElement} toast */
  #remove(toast) {
    clearTimeout(this.#timers.get(toast));
    this.#timers.delete(toast);
    toast.remove();
    if (!this.#timers.size) this.#more = 0;
    this.#count();
  }

  #count() {
    this.#rest.hidden = this.#more === 0;
    this.#rest.textContent = `and ${this.#more} more before · dismiss all`;
  }

  /** @param {HTMLElement} toast */
  #expire(toast) {
    return setTimeout(() => this.#remove(toast), SHOWN_FOR_MS);
  }

  #hold() {
    for (const timer of this.#timers.values()) clearTimeout(timer);
  }

  #release() {
    for (const toast of this.#timers.keys()) {
      clearTimeout(this.#timers.get(toast));
      this.#timers.set(toast, this.#expire(toast));
    }
  }
}
