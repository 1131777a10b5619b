/**
 * The board of one pane: a column per status, a card per order, in step with the events.
 *
 * In: orders that were fetched, changes from events. Out: the user's moves, by button or drag. A move shows when its event comes, as it does on the
 * board of the other person. The focus moves with its card.
 *
 * @import { Change, Order } from "./order.js"
 * @typedef {{ order: Order, item: HTMLLIElement, article: HTMLElement, name: HTMLElement, total: HTMLElement, by: HTMLElement, actions: HTMLElement }} Card
 */
import { element } from "../../design/element.js";
import { glide } from "./glide.js";
import { merged, money } from "./order.js";

/** MIME type of a dragged order: the board ignores text dropped from elsewhere. */
const DRAGGED = "application/x-headgate-order";
/** The most orders. Beyond it, no event adds one. */
const MAX_ORDERS = 100;
/** The buttons of a card in each status, and the status that each leads to. @type {Record<string, [word: string, status: string][]>} */
const OFFERED = {
  new: [["Pack", "packed"], ["Fail", "failed"]],
  packed: [["Ship", "shipped"], ["Fail", "failed"]],
  shipped: [["Fail", "failed"]],
  failed: [["Retry", "new"]],
};

export class Board {
  /** @type {Map<string, Card>} */
  #cards = new Map();
  /** @type {Map<string, Order | null>} by id, the changes that the next frame shows; null: the order is gone */
  #waiting = new Map();

  /** @param {HTMLElement} root @param {(id: string, status: string) => void} move @param {(user: string) => string} nameOf */
  constructor(root, move, nameOf) {
    this.root = root;
    this.move = move;
    this.nameOf = nameOf;
    for (const column of this.#columns()) {
      column.addEventListener("dragover", (event) => event.dataTransfer?.types.includes(DRAGGED) && event.preventDefault());
      column.addEventListener("drop", (event) => {
        const id = event.dataTransfer?.getData(DRAGGED);
        if (!id) return;
        event.preventDefault();
        move(id, /** @type {string} */ (column.dataset.status));
      });
    }
  }

  /** Show these orders alone. @param {Order[]} orders */
  reset(orders) {
    for (const id of [...this.#cards.keys(), ...this.#waiting.keys()]) this.#waiting.set(id, null);
    for (const order of orders) this.#waiting.set(order.id, order);
    this.draw();
    this.root.removeAttribute("aria-busy");
  }

  /** Apply an event with the next frame, because a burst has hundreds of changes for one frame. @param {Change} change */
  apply({ op, id, fields }) {
    const before = this.#waiting.has(id) ? this.#waiting.get(id) : this.#cards.get(id)?.order;
    if (op === "ignore" || (!before && (op === "remove" || this.#cards.size + this.#waiting.size >= MAX_ORDERS))) return;
    if (!this.#waiting.size) requestAnimationFrame(() => this.draw());
    this.#waiting.set(id, op === "remove" ? null : merged(before ?? undefined, { op, id, fields }));
  }

  /** Show the waiting changes. */
  draw() {
    const changes = [...this.#waiting];
    this.#waiting.clear();
    const known = changes.flatMap(([id, order]) => (order && this.#cards.get(id)?.article) || []);
    const parts = () => (this.root.ariaBusy === "true" ? [] : [...this.#columns(), ...[...this.#cards.values()].map(({ item }) => item)]);
    glide(parts, () => {
      for (const [id, order] of changes) {
        const card = this.#cards.get(id) ?? (order && this.#make(id));
        if (order && card) this.#fill(card, order);
        else {
          card?.item.remove();
          this.#cards.delete(id);
        }
      }
      for (const column of this.#columns()) /** @type {HTMLElement} */ (column.querySelector(".count")).textContent = String(column.querySelectorAll("li").length);
    });
    for (const article of known) article.classList.remove("fresh");
    if (known.length) void this.root.offsetWidth; // restarts the animation
    for (const article of known) article.classList.add("fresh");
  }

  /** @param {string} id @returns {Card} */
  #make(id) {
    const [name, total] = [element("h4"), element("span", { className: "total" })];
    const [by, actions] = [element("span", { className: "face" }), element("div", { className: "actions" })];
    const article = element("article", { className: "card", draggable: true, data: { id }, aria: { label: `Order ${id}` } }, name, element("span", { className: "number", text: `#${id}` }), total, actions, by);
    article.addEventListener("dragstart", (event) => event.dataTransfer?.setData(DRAGGED, id));
    const card = { order: /** @type {Order} */ ({}), item: element("li", {}, article), article, name, total, by, actions };
    this.#cards.set(id, card);
    return card;
  }

  /** @param {Card} card @param {Order} order */
  #fill(card, order) {
    const { id, status, customer, total_cents, by } = order;
    const isMoved = card.order.status !== status;
    card.order = order;
    card.name.textContent = customer;
    card.total.textContent = money(total_cents);
    card.by.textContent = this.nameOf(by).slice(0, 1).toUpperCase();
    card.by.title = by && `Last change by ${this.nameOf(by)}`;
    card.by.dataset.user = by;
    if (!isMoved) return;
    const focused = card.item.contains(document.activeElement);
    // The highest number first, in any order of arrival.
    const list = /** @type {HTMLElement} */ (this.root.querySelector(`[data-status="${status}"] ul`));
    const numberOf = (/** @type {Element} */ item) => Number(/** @type {HTMLElement} */ (item.firstElementChild).dataset.id);
    list.insertBefore(card.item, [...list.children].find((each) => numberOf(each) < Number(id)) ?? null);
    card.actions.replaceChildren(...OFFERED[status].map(([word, to]) => {
      const button = element("button", { type: "button", className: "action", text: word, aria: { label: `${word} order ${id}` } });
      button.addEventListener("click", () => this.move(id, to));
      return button;
    }));
    if (focused) /** @type {HTMLElement} */ (card.actions.firstElementChild).focus({ preventScroll: true });
  }

  #columns() {
    return /** @type {HTMLElement[]} */ ([...this.root.querySelectorAll(".column")]);
  }
}
