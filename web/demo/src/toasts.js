/**
 * Toasts: a bounded stack of notices, read out politely, dismissable, gone by themselves unless someone looks at them.
 *
 * In: `show`. Out: elements in the stack's own live region. A burst never grows the stack: the oldest give way and are
 * counted in a line that says how many. A toast that is dismissed hands the focus on: to the next one for who uses the
 * keyboard, else to where it was before.
 */
import { element } from "./element.js";

const MAX_SHOWN = 4;
const SHOWN_FOR_MS = 9000;

export class Toasts {
  #root;
  #stack;
  #rest;
  #more = 0;
  #pointed = false;
  /** @type {any} what had the focus before it came here */
  #before;
  /** @type {Map<HTMLElement, ReturnType<typeof setTimeout> | undefined>} */
  #timers = new Map();

  /** @param {HTMLElement} root */
  constructor(root) {
    this.#root = root;
    this.#rest = element("button", { type: "button", className: "rest", hidden: true });
    this.#rest.addEventListener("click", () => {
      this.#handOn(null);
      this.clear();
    });
    this.#stack = element("div", { role: "log", className: "stack", aria: { live: "polite", label: "Latest notifications" } });
    root.append(this.#rest, this.#stack);
    // Someone who reads, or is on the way to the close button, decides when it goes.
    for (const kind of ["pointerenter", "pointerleave"]) {
      root.addEventListener(kind, () => {
        this.#pointed = kind === "pointerenter";
        this.#time();
      });
    }
    root.addEventListener("focusin", ({ relatedTarget }) => {
      if (!root.contains(/** @type {Node | null} */ (relatedTarget))) this.#before = relatedTarget;
      this.#time();
    });
    root.addEventListener("focusout", () => this.#time());
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
      // By mouse the button has the focus too, but nobody is on the way from one to the next.
      const next = close.matches(":focus-visible") && (toast.nextElementSibling ?? toast.previousElementSibling);
      this.#handOn(next ? next.querySelector("button") : null);
      this.#remove(toast);
    });
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

  /** @param {HTMLElement | null} next */
  #handOn(next) {
    (next ?? this.#before)?.focus({ preventScroll: true });
  }

  /** Time runs for all of them, from now, or for none. */
  #time() {
    for (const [toast, timer] of this.#timers) {
      clearTimeout(timer);
      this.#timers.set(toast, this.#expire(toast));
    }
  }

  /** @param {HTMLElement} toast @returns {ReturnType<typeof setTimeout> | undefined} none while someone looks */
  #expire(toast) {
    if (this.#pointed || this.#root.querySelector(":focus-visible")) return undefined;
    return setTimeout(() => this.#remove(toast), SHOWN_FOR_MS);
  }
}
