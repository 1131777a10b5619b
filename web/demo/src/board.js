/**
 * The board: a column per status, a card per order, kept in step with the collection.
 *
 * In: the collection's `add`, `change`, `remove`. Out: moves by drag, button or keyboard, through the card's actions. The focus
 * moves with its card.
 *
 * @import { CardActions } from "./card.js"
 */
import { Card } from "./card.js";
import { glide } from "./glide.js";
import { STATUSES } from "./order.js";

/** MIME type of a dragged order: the board ignores text that is dropped from elsewhere. */
const DRAGGED = "application/x-headgate-order";

export class Board {
  /** @type {Map<string, Card>} */
  #cards = new Map();
  /** @type {Map<string, { section: HTMLElement, list: HTMLElement, count: HTMLElement }>} */
  #columns = new Map();
  /** @type {string | null} the order at whose card the Tab key stops */
  #stop = null;

  /**
   * @param {HTMLElement} root
   * @param {any} orders a Backbone collection
   * @param {CardActions} actions
   * @param {{ user: string, names: Record<string, string>, limits: Record<string, number> }} page
   */
  constructor(root, orders, actions, page) {
    this.root = root;
    this.orders = orders;
    this.actions = actions;
    this.page = page;
    for (const status of STATUSES) {
      const section = /** @type {HTMLElement} */ (root.querySelector(`[data-status="${status}"]`));
      const [list, count] = [".cards", ".count"].map((each) => /** @type {HTMLElement} */ (section.querySelector(each)));
      this.#columns.set(status, { section, list, count });
      this.#acceptDrops(section, status);
    }
    root.addEventListener("keydown", (event) => this.#key(event));
    root.addEventListener("focusin", ({ target }) => {
      const article = /** @type {HTMLElement} */ (target).closest(".card");
      if (article instanceof HTMLElement) this.#stopAt(article.dataset.id ?? null);
    });
    orders.on("add change", (/** @type {any} */ order) => this.#show(order.attributes));
    orders.on("remove", (/** @type {any} */ order) => this.#remove(String(order.id)));
    orders.on("reset", () => this.#reset());
    // Until there are orders to show, nothing is: what comes below would be pushed away.
    orders.on("add reset sync error", () => root.removeAttribute("aria-busy"));
    orders.each((/** @type {any} */ order) => this.#show(order.attributes));
  }

  /** @param {string} id @returns {Card | undefined} */
  card(id) {
    return this.#cards.get(id);
  }

  /** Show an order to the user, and give its card the focus. @param {string} id @returns {boolean} whether it is on the board */
  focus(id) {
    const card = this.#cards.get(id);
    if (!card) return false;
    card.article.scrollIntoView({ block: "center" });
    card.article.focus({ preventScroll: true });
    return true;
  }

  /** @param {Record<string, any>} order */
  #show(order) {
    const id = String(order.id);
    const known = this.#cards.get(id);
    const card = known ?? this.#make(id);
    card.update(order, Boolean(known) && order.by !== this.page.user);
    this.#place(card, order.status);
    this.#count();
  }

  /** Put the card into its column, highest number first; a card that is there already stays in place. @param {Card} card @param {string} status */
  #place(card, status) {
    const list = this.#columns.get(status)?.list;
    if (!list || card.element.parentElement === list) return;
    const number = Number(card.article.dataset.id);
    const after = [...list.children].find((each) => Number(/** @type {HTMLElement} */ (each.firstElementChild).dataset.id) < number);
    glide(() => this.#parts(), () => card.moveTo(list, after ?? null));
  }

  /** What a card that comes, goes or moves pushes aside: columns, their cards, and what is below the board. @returns {HTMLElement[]} */
  #parts() {
    if (this.root.ariaBusy === "true") return [];
    const columns = [...this.#columns.values()].map(({ section }) => section);
    const cards = [...this.#cards.values()].map(({ element }) => element);
    return /** @type {HTMLElement[]} */ ([...columns, ...cards, ...[...(this.root.parentElement?.children ?? [])].filter((each) => each !== this.root)]);
  }

  /** @param {string} id */
  #make(id) {
    const card = new Card(id, this.actions, this.page);
    card.head.addEventListener("dragstart", (event) => {
      event.dataTransfer?.setData(DRAGGED, id);
      event.dataTransfer?.setDragImage(card.article, 20, 20);
      card.article.classList.add("dragged");
    });
    card.head.addEventListener("dragend", () => card.article.classList.remove("dragged"));
    this.#cards.set(id, card);
    return card;
  }

  /** @param {string} id */
  #remove(id) {
    const card = this.#cards.get(id);
    if (!card) return;
    const focused = card.element.contains(document.activeElement);
    const next = card.element.nextElementSibling ?? card.element.previousElementSibling;
    glide(() => this.#parts(), () => card.element.remove());
    this.#cards.delete(id);
    if (focused) /** @type {HTMLElement} */ (next?.firstElementChild ?? this.root).focus();
    this.#count();
  }

  #reset() {
    for (const id of [...this.#cards.keys()]) if (!this.orders.get(id)) this.#remove(id);
    this.orders.each((/** @type {any} */ order) => this.#show(order.attributes));
  }

  /** One card of the board is a stop of the Tab key: the one that had the focus last, or the first. @param {string | null} id */
  #stopAt(id) {
    const known = this.#stop === null ? undefined : this.#cards.get(this.#stop);
    if (known) known.isStop = false;
    this.#stop = id;
    const card = id === null ? undefined : this.#cards.get(id);
    if (card) card.isStop = true;
  }

  #count() {
    if (this.#stop === null || !this.#cards.has(this.#stop)) {
      const first = /** @type {HTMLElement | null} */ (this.root.querySelector(".card"));
      this.#stopAt(first?.dataset.id ?? null);
    }
    for (const { list, count } of this.#columns.values()) count.textContent = String(list.children.length);
  }

  /** @param {HTMLElement} section @param {string} status */
  #acceptDrops(section, status) {
    const over = (/** @type {boolean} */ is) => section.classList.toggle("over", is);
    section.addEventListener("dragover", (event) => {
      if (!event.dataTransfer?.types.includes(DRAGGED)) return;
      event.preventDefault();
      over(true);
    });
    section.addEventListener("dragleave", (event) => {
      if (!section.contains(/** @type {Node} */ (event.relatedTarget))) over(false);
    });
    section.addEventListener("drop", (event) => {
      over(false);
      const id = event.dataTransfer?.getData(DRAGGED);
      if (!id) return;
      event.preventDefault();
      this.actions.move(id, status);
    });
  }

  /** Arrow keys on a card move the focus to the next card; with Shift they move the card. @param {KeyboardEvent} event */
  #key(event) {
    const article = /** @type {HTMLElement} */ (event.target);
    if (!article.classList.contains("card") || event.altKey || event.ctrlKey || event.metaKey) return;
    const sideways = event.key === "ArrowLeft" ? -1 : event.key === "ArrowRight" ? 1 : 0;
    const along = event.key === "ArrowUp" ? -1 : event.key === "ArrowDown" ? 1 : 0;
    if (!sideways && !along) return;
    event.preventDefault();
    if (event.shiftKey && sideways) this.actions.step(String(article.dataset.id), sideways);
    else if (!event.shiftKey) this.#focusBeside(article, sideways, along);
  }

  /** @param {HTMLElement} article @param {number} sideways @param {number} along */
  #focusBeside(article, sideways, along) {
    const lists = [...this.#columns.values()].map(({ list }) => [...list.children]);
    const column = lists.findIndex((cards) => cards.some((each) => each.contains(article)));
    const row = lists[column].findIndex((each) => each.contains(article));
    /** @type {Element | null | undefined} */
    let target = lists[column][row + along];
    if (sideways) {
      const beyond = sideways > 0 ? lists.slice(column + 1) : lists.slice(0, column).reverse();
      const filled = beyond.find((cards) => cards.length);
      target = filled?.[Math.min(row, filled.length - 1)] ?? article.parentElement;
    }
    /** @type {HTMLElement | undefined} */ (target?.firstElementChild)?.focus();
  }
}
