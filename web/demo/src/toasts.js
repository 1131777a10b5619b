/**
 * Toasts: a bounded stack of notices. A screen reader reads them politely; the user can dismiss them; they expire unless the user
 * looks at them.
 *
 * In: `show`. Out: elements in the stack's own live region. A burst does not grow the stack: the oldest toasts go, and a line says
 * how many. A dismissed toast hands the focus on: to the next toast if the user works with the keyboard, else to the element that
 * had it before.
 */
import { element } from "../../design/element.js";
import { Expiring } from "./expiring.js";
import { glide } from "./glide.js";

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
    // A clicked button has the focus too, but a user of the mouse does not go on to the next one.
    this.#shown = new Expiring(root, SHOWN_FOR_MS, ":focus-visible", (toast) => this.#remove(toast));
  }

  /**
   * @param {{ title: string, detail: string, status?: string, topic?: string }} words plain text, no markup
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
    this.#glide(() => {
      this.#stack.append(toast);
      this.#shown.start(toast);
      while (this.#shown.elements.length > MAX_SHOWN) {
        this.#more++;
        this.#take(/** @type {HTMLElement} */ (this.#stack.firstElementChild));
      }
    });
  }

  /** Dismiss all. */
  clear() {
    for (const toast of this.#shown.elements) this.#take(toast);
    this.#count();
  }

  /** @param {HTMLElement} toast */
  #remove(toast) {
    this.#glide(() => this.#take(toast));
  }

  /** @param {HTMLElement} toast */
  #take(toast) {
    this.#shown.stop(toast);
    toast.remove();
    if (!this.#shown.elements.length) this.#more = 0;
  }

  /** Change the stack; the toasts that this moves glide. @param {() => void} change */
  #glide(change) {
    glide(
      () => /** @type {HTMLElement[]} */ ([...this.#stack.children]),
      () => {
        change();
        this.#count();
      },
    );
  }

  #count() {
    this.#rest.hidden = this.#more === 0;
    this.#rest.textContent = `and ${this.#more} more before · dismiss all`;
  }
}
