/**
 * The board of one pane: a column per status, a card per order.
 *
 * In: orders that changed or went. Out: the user's moves (button, Shift with an arrow key, drag), notes, deletions. A note that is being typed is
 * not overwritten: if someone else wrote another one meanwhile, the card says so, and a second Enter means it. The focus moves with its card.
 *
 * @import { Order } from "./order.js"
 * @typedef {{ move: (id: string, status: string) => void, note: (id: string, note: string, seen: string) => Promise<string | undefined>, remove: (id: string) => void }} Actions
 *   `note` resolves with what to say about a note that was not saved
 * @typedef {{ order: Order, item: HTMLLIElement, article: HTMLElement, name: HTMLElement, total: HTMLElement, note: HTMLInputElement, by: HTMLElement,
 *   actions: HTMLElement, alert: HTMLElement, seen: string, saving: Promise<void> }} Card `seen`: the note as it was when the user began to type
 */
import { element } from "../../design/element.js";
import { glide } from "./glide.js";
import { money, STATUSES } from "./order.js";

/** MIME type of a dragged order: the board ignores text that is dropped from elsewhere. */
const DRAGGED = "application/x-headgate-order";

export class Board {
  /** @type {Map<string, Card>} */
  #cards = new Map();
  #moving = false;
  /** @type {Map<string, Order>} */
  #waiting = new Map();

  /** @param {HTMLElement} root @param {Actions} actions @param {{ nameOf: (user: string) => string, noteLength: number }} page */
  constructor(root, actions, page) {
    this.root = root;
    this.actions = actions;
    this.page = page;
    for (const column of this.#columns()) {
      column.addEventListener("dragover", (event) => event.dataTransfer?.types.includes(DRAGGED) && event.preventDefault());
      column.addEventListener("drop", (event) => {
        const id = event.dataTransfer?.getData(DRAGGED);
        if (!id) return;
        event.preventDefault();
        actions.move(id, /** @type {string} */ (column.dataset.status));
      });
    }
  }

  /** Show an order with the next frame: a burst changes some hundred times what a frame shows once. @param {Order} order */
  show(order) {
    if (!this.#waiting.size) requestAnimationFrame(() => this.draw());
    this.#waiting.set(order.id, order);
  }

  /** Show what waits for the next frame. */
  draw() {
    const orders = [...this.#waiting.values()];
    this.#waiting.clear();
    const known = orders.filter(({ id }) => this.#cards.has(id)).map(({ id }) => /** @type {Card} */ (this.#cards.get(id)).article);
    const cards = orders.map((order) => ({ order, card: this.#cards.get(order.id) ?? this.#make(order) }));
    const moved = cards.filter(({ order, card }) => card.item.parentElement !== this.#list(order.status));
    const move = () => {
      for (const { order, card } of moved) this.#put(card.item, this.#list(order.status));
    };
    if (moved.length) this.#change(move);
    for (const { order, card } of cards) this.#fill(card, order);
    for (const article of known) article.classList.remove("fresh");
    if (known.length) void this.root.offsetWidth; // restarts the animation
    for (const article of known) article.classList.add("fresh");
  }

  /** @param {string} id */
  remove(id) {
    this.#waiting.delete(id);
    const card = this.#cards.get(id);
    if (!card) return;
    const focused = card.item.contains(document.activeElement);
    const next = card.item.nextElementSibling ?? card.item.previousElementSibling;
    this.#change(() => card.item.remove());
    this.#cards.delete(id);
    if (focused) /** @type {HTMLElement} */ (next?.firstElementChild ?? this.root).focus({ preventScroll: true });
  }

  /** Give a card the focus. @param {string} id */
  focus(id) {
    this.draw();
    this.#cards.get(id)?.article.scrollIntoView({ block: "nearest" });
    this.#cards.get(id)?.article.focus({ preventScroll: true });
  }

  /** @param {Order} order @returns {Card} */
  #make({ id }) {
    const [name, number] = [element("h4"), element("span", { className: "number", text: `#${id}` })];
    const [total, by] = [element("span", { className: "total" }), element("span", { className: "by" })];
    const note = element("input", { name: "note", maxLength: this.page.noteLength, placeholder: "Add a note", autocomplete: "off", aria: { label: `Note of order ${id}` } });
    const actions = element("div", { className: "actions" });
    const alert = element("p", { className: "conflict", role: "alert" });
    const article = element("article", { className: "card", tabIndex: 0, draggable: true, data: { id }, aria: { label: `Order ${id}` } }, name, number, total, note, alert, by, actions);
    const card = { order: /** @type {Order} */ ({}), item: element("li", {}, article), article, name, total, note, by, actions, alert, seen: "", saving: Promise.resolve() };
    article.addEventListener("keydown", (event) => event.target === article && this.#key(card, event));
    article.addEventListener("dragstart", (event) => event.dataTransfer?.setData(DRAGGED, id));
    note.addEventListener("keydown", (event) => {
      if (event.key === "Enter") {
        event.preventDefault();
        alert.textContent = "";
        this.#save(card);
      } else if (event.key === "Escape") {
        alert.textContent = "";
        note.value = card.seen = card.order.note;
        article.focus();
      }
    });
    // Not while the card is taken to another column, and not what the user has been asked about.
    note.addEventListener("change", () => !this.#moving && !alert.textContent && this.#save(card));
    this.#cards.set(id, card);
    return card;
  }

  /** Save what is written, after what is being saved. @param {Card} card */
  #save(card) {
    const [written, seen] = [card.note.value, card.seen];
    if (written === seen) return;
    // What comes until the answer is compared with what was written.
    card.seen = written;
    card.saving = card.saving.then(async () => {
      const says = await this.actions.note(card.order.id, written, seen);
      card.alert.textContent = says ?? "";
      // Another Enter is meant: it is compared with what is there now.
      if (says !== undefined) card.seen = card.order.note;
    });
  }

  /** @param {Card} card @param {Order} order */
  #fill(card, order) {
    const { id, status, customer, total_cents, note, by, version } = order;
    const isSame = card.order.status === status && (card.order.version === undefined) === (version === undefined);
    if (card.note.value === card.seen) card.note.value = card.seen = note;
    card.order = order;
    card.article.dataset.status = status;
    card.name.textContent = customer;
    card.total.textContent = money(total_cents);
    card.by.textContent = `by ${this.page.nameOf(by)}`;
    if (isSame && card.actions.childElementCount) return;
    const focused = [...card.actions.children].indexOf(/** @type {Element} */ (document.activeElement));
    /** @type {[sign: string, label: string, status: string][]} */
    const offered = status === "failed" ? [["‹", `Move order ${id} to new`, "new"]] : [["!", `Fail order ${id}`, "failed"]];
    const next = STATUSES[STATUSES.indexOf(status) + 1];
    if (next !== "failed" && status !== "failed") offered.unshift(["›", `Move order ${id} to ${next}`, next]);
    // An order that is known from an event alone can only be taken off.
    const moves = version === undefined ? [] : offered.map(([sign, label, to]) => this.#button(sign, label, () => this.actions.move(id, to)));
    const remove = this.#button("×", version === undefined ? `Take order ${id} off this board` : `Delete order ${id}`, () => this.actions.remove(id));
    remove.classList.add("danger");
    card.actions.replaceChildren(...moves, remove);
    if (focused >= 0) /** @type {HTMLElement} */ (card.actions.children[Math.min(focused, moves.length)]).focus({ preventScroll: true });
  }

  /** An arrow key goes to another card; with Shift it moves this one. @param {Card} card @param {KeyboardEvent} event */
  #key({ order: { id, status }, item }, event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? 0;
    let to = STATUSES.indexOf(status) + step;
    if (event.shiftKey && STATUSES[to] && step) this.actions.move(id, STATUSES[to]);
    while (step && STATUSES[to] && !this.#list(STATUSES[to]).childElementCount) to += step;
    const beside = step ? (STATUSES[to] ? this.#list(STATUSES[to]).firstElementChild : null) : { ArrowDown: item.nextElementSibling, ArrowUp: item.previousElementSibling }[event.key];
    if (!step && !event.key.startsWith("Arrow")) return;
    event.preventDefault();
    if (!event.shiftKey) /** @type {HTMLElement | undefined} */ (beside?.firstElementChild)?.focus();
  }

  /** @param {string} sign @param {string} label @param {() => void} act */
  #button(sign, label, act) {
    const button = element("button", { type: "button", className: "icon", text: sign, aria: { label } });
    button.addEventListener("click", act);
    return button;
  }

  #columns() {
    return /** @type {HTMLElement[]} */ ([...this.root.querySelectorAll("[data-status].column")]);
  }

  /** @param {string} status */
  #list(status) {
    return /** @type {HTMLElement} */ (this.root.querySelector(`.column[data-status="${status}"] ul`));
  }

  /** Highest number first. @param {HTMLLIElement} item @param {HTMLElement} list */
  #put(item, list) {
    const number = Number(/** @type {HTMLElement} */ (item.firstElementChild).dataset.id);
    const after = [...list.children].find((each) => Number(/** @type {HTMLElement} */ (each.firstElementChild).dataset.id) < number);
    const focused = item.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement) : null;
    this.#moving = true;
    list.insertBefore(item, after ?? null);
    this.#moving = false;
    focused?.focus({ preventScroll: true });
  }

  /** Change the board, and let glide what that pushes aside. @param {() => void} change */
  #change(change) {
    glide(() => (this.root.ariaBusy === "true" ? [] : [...this.#columns(), ...[...this.#cards.values()].map(({ item }) => item)]), change);
    for (const column of this.#columns()) /** @type {HTMLElement} */ (column.querySelector("h3 span")).textContent = String(column.querySelectorAll("li").length);
  }
}
