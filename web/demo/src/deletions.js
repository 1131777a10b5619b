/**
 * Deletions: a notice with an Undo for each order that this tab has just deleted.
 *
 * In: `show` with a deleted order. Out: calls of `restore`. The notice goes when the order is back, gives the reason when it cannot
 * come back, and offers Undo again when another attempt can help. The notices are a status region: newest first, bounded, each
 * shown for SHOWN_FOR_MS or for as long as the user looks at it. The server restores for much longer.
 *
 * @import { Restored } from "./edits.js"
 * @typedef {{ id: string, version: number, customer: string }} Deletion
 */
import { element } from "../../design/element.js";
import { Expiring } from "./expiring.js";

/** More than a user deletes in SHOWN_FOR_MS. */
const MAX_SHOWN = 30;
const SHOWN_FOR_MS = 20_000;

export class Deletions {
  #root;
  #shown;

  /**
   * @param {HTMLElement} root a status region
   * @param {(deletion: Deletion) => Promise<Restored>} restore
   * @param {{ root: HTMLElement, card: (id: string) => { article: HTMLElement } | undefined }} board the focus goes there
   */
  constructor(root, restore, board) {
    this.#root = root;
    this.restore = restore;
    this.board = board;
    this.#shown = new Expiring(root, SHOWN_FOR_MS, ":focus", (notice) => this.#remove(notice));
    root.addEventListener("keydown", (event) => {
      const notice = /** @type {HTMLElement | null} */ (/** @type {HTMLElement} */ (event.target).closest(".notice"));
      if (event.key === "Escape" && notice) this.#dismiss(notice, true);
      // A held Enter key deleted the order; its repetitions must not press the Undo that has the focus now.
      if (event.key === "Enter" && event.repeat) event.preventDefault();
    });
  }

  /** @param {Deletion} deletion @param {boolean} byKeyboard moves the focus to the Undo, which is too far away for the Tab key */
  show(deletion, byKeyboard) {
    const { id, customer } = deletion;
    const title = `Deleted order ${id}`;
    const said = element("p", {}, element("strong", { text: title }), element("span", { text: customer }));
    const undo = element("button", { type: "button", className: "button", text: "Undo", aria: { label: `Undo: restore order ${id}` } });
    const close = element("button", { type: "button", className: "icon", text: "×", aria: { label: `Dismiss: ${title}` } });
    const notice = element("div", { className: "notice" }, said, undo, close);
    undo.addEventListener("click", () => void this.#undo(deletion, { notice, said, undo, close }));
    close.addEventListener("click", () => this.#dismiss(notice, close.matches(":focus-visible")));
    this.#root.prepend(notice);
    this.#shown.start(notice);
    if (this.#shown.elements.length > MAX_SHOWN) this.#remove(this.#shown.elements[0]);
    if (byKeyboard && !(document.activeElement instanceof HTMLInputElement)) undo.focus();
  }

  /**
   * @param {Deletion} deletion
   * @param {{ notice: HTMLElement, said: HTMLElement, undo: HTMLButtonElement, close: HTMLButtonElement }} parts
   */
  async #undo(deletion, { notice, said, undo, close }) {
    if (undo.ariaDisabled === "true") return;
    undo.ariaDisabled = "true";
    const { restored, title, detail, again } = await this.restore(deletion);
    undo.ariaDisabled = "false";
    const focused = notice.contains(document.activeElement);
    if (restored) {
      const article = this.board.card(deletion.id)?.article;
      article?.scrollIntoView({ block: "nearest" });
      if (focused) this.#shown.handOn(article, this.board.root);
      this.#remove(notice);
      return;
    }
    said.replaceChildren(element("strong", { text: title }), element("span", { text: detail }));
    notice.classList.add("refused");
    close.setAttribute("aria-label", `Dismiss: ${title}`);
    if (!again) {
      if (focused) close.focus();
      undo.remove();
    }
    // The notice may have expired during the request, and its text is new.
    if (!notice.isConnected) this.#root.prepend(notice);
    this.#shown.start(notice);
  }

  /** @param {HTMLElement} notice @param {boolean} byKeyboard moves the focus to the next notice */
  #dismiss(notice, byKeyboard) {
    const beside = byKeyboard ? (notice.nextElementSibling ?? notice.previousElementSibling) : null;
    this.#shown.handOn(beside?.querySelector("button"));
    this.#remove(notice);
    if (document.activeElement === document.body) this.board.root.focus({ preventScroll: true });
  }

  /** @param {HTMLElement} notice */
  #remove(notice) {
    this.#shown.stop(notice);
    notice.remove();
  }
}
