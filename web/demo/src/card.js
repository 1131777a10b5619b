/**
 * The card of one order: it shows the order, and turns clicks and keys into actions.
 *
 * In: `update` with the present order. Out: calls of `actions`. An update does not overwrite a field in which the user is
 * typing; edits.js finds the conflict when the user commits the field.
 *
 * @import { EditOutcome } from "./edits.js"
 * @typedef {Record<string, any>} Order
 * @typedef {{ input: HTMLInputElement, seen: string, saving: boolean, again: boolean }} Field `seen`: the saved value that the
 *   card showed last; `again`: the user committed the field again during a save
 * @typedef {object} CardActions
 * @property {(id: string, field: string, value: string, seen: string) => Promise<EditOutcome>} edit
 * @property {(id: string, step: -1 | 1) => void} step
 * @property {(id: string, status: string) => void} move
 * @property {(id: string, byKeyboard: boolean) => void} remove
 */
import { element } from "../../design/element.js";
import { isOfTheShop, money, neighbour, nextStep, UNKNOWN } from "./order.js";

const FLASH_EVERY_MS = 400;

export class Card {
  #id;
  #actions;
  #limits;
  #moving = false;
  #flashedMs = -Infinity;
  #title;
  #total = element("span", { className: "total" });
  #facts = element("p");
  #by = element("span", { className: "by" });
  #conflict = element("p", { className: "conflict", role: "alert", hidden: true });
  #back = element("button", { type: "button", className: "action" });
  #forth = element("button", { type: "button", className: "action next" });
  #fail = element("button", { type: "button", className: "action danger" });
  #remove = element("button", { type: "button", className: "action danger" });
  /** @type {Map<string, Field>} */
  #fields = new Map();

  /**
   * @param {string} id
   * @param {CardActions} actions
   * @param {{ names: Record<string, string>, limits: Record<string, number> }} page
   */
  constructor(id, actions, { names, limits }) {
    this.#id = id;
    this.#actions = actions;
    this.#limits = limits;
    this.names = names;
    const number = element("span", { id: `order-${id}-number`, className: "number", text: `#${id}` });
    this.#title = element("h3", { id: `order-${id}-title` });
    this.head = element("div", { className: "card-head", draggable: true }, number, this.#total, this.#title);
    this.#back.addEventListener("click", () => actions.step(id, -1));
    this.#forth.addEventListener("click", () => actions.step(id, 1));
    this.#fail.addEventListener("click", () => actions.move(id, "failed"));
    this.#remove.addEventListener("click", () => actions.remove(id, this.#remove.matches(":focus-visible")));
    this.article = element(
      "article",
      { className: "card", tabIndex: -1, data: { id }, aria: { labelledby: `${number.id} ${this.#title.id}`, describedby: "keys" } },
      this.head,
      element("div", { className: "card-facts" }, this.#facts, this.#by),
      this.#field("carrier", "Carrier", "none"),
      this.#field("note", "Note", "add note"),
      this.#conflict,
      element("div", { className: "card-actions" }, this.#back, this.#forth, this.#fail, this.#remove),
    );
    this.element = element("li", {}, this.article);
    this.#open(false);
    // The board is one stop of the Tab key. A card's own controls are stops while the focus is in it.
    this.article.addEventListener("focusin", ({ target }) => this.#open(target !== this.article));
    this.article.addEventListener("focusout", ({ relatedTarget }) => this.#moving || this.element.contains(/** @type {Node | null} */ (relatedTarget)) || this.#open(false));
    this.article.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.target === this.article) this.#enter(event);
      if (event.key === "Escape" && event.target !== this.article) this.article.focus();
    });
  }

  /** Whether this is the card that the Tab key stops at. @param {boolean} is */
  set isStop(is) {
    this.article.tabIndex = is ? 0 : -1;
  }

  /** @param {KeyboardEvent} event */
  #enter(event) {
    event.preventDefault();
    this.#controls.find((each) => !each.hidden)?.focus();
  }

  /** @returns {(HTMLInputElement | HTMLButtonElement)[]} */
  get #controls() {
    return [...[...this.#fields.values()].map(({ input }) => input), this.#back, this.#forth, this.#fail, this.#remove];
  }

  /** Let the Tab key stop at the controls, or not. @param {boolean} is */
  #open(is) {
    for (const each of this.#controls) each.tabIndex = is ? 0 : -1;
  }

  /** @param {Order} order @param {boolean} fresh whether someone else has just changed it */
  update(order, fresh) {
    const focused = this.#focused();
    this.article.dataset.status = order.status;
    this.#title.textContent = order.customer || UNKNOWN.customer;
    this.#total.textContent = order.total_cents ? money(order.total_cents) : "";
    this.#facts.textContent = factsOf(order);
    this.#by.textContent = order.by ? `by ${Object.hasOwn(this.names, order.by) ? this.names[order.by] : order.by}` : "";
    for (const [name, field] of this.#fields) this.#show(field, order[name] ?? "");
    this.#offer(order);
    // A button that goes away hands the focus to the card.
    if (focused?.hidden) this.article.focus({ preventScroll: true });
    if (fresh) this.#flash();
  }

  /** Show a button for each action that the order's status allows, and only one for each. @param {Order} order */
  #offer(order) {
    const known = isOfTheShop(order);
    const [back, next] = [neighbour(order, -1), nextStep(order)];
    offer(this.#back, known && back && `Move order ${this.#id} to ${back}`, back ? `‹ ${capital(back)}` : "");
    offer(this.#forth, known && next && `Move order ${this.#id} to ${next}`, next ? `${capital(next)} ›` : "");
    offer(this.#fail, known && order.status !== "failed" && `Fail order ${this.#id}`, "Fail");
    offer(this.#remove, known ? `Delete order ${this.#id}` : `Take order ${this.#id} off this board`, known ? "Delete" : "Take off");
  }

  /** Put the card into a list; the element that has the focus keeps it. @param {Element} list @param {Element | null} before */
  moveTo(list, before) {
    const focused = this.#focused();
    this.#moving = true;
    list.insertBefore(this.element, before);
    focused?.focus({ preventScroll: true });
    this.#moving = false;
    if (focused) this.article.scrollIntoView({ block: "nearest" });
  }

  /** @returns {HTMLElement | null} the element in this card that has the focus */
  #focused() {
    return this.element.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement) : null;
  }

  /** @param {boolean} busy */
  set busy(busy) {
    this.article.setAttribute("aria-busy", String(busy));
  }

  /** @param {string} name @param {string} label @param {string} placeholder */
  #field(name, label, placeholder) {
    const id = `order-${this.#id}-${name}`;
    const input = element("input", { id, type: "text", name, placeholder, maxLength: this.#limits[name], autocomplete: "off" });
    const field = { input, seen: "", saving: false, again: false };
    this.#fields.set(name, field);
    // Leaving a field saves it too, unless the card shows a conflict or is being moved.
    input.addEventListener("blur", () => !this.#moving && this.#conflict.hidden && void this.#commit(name, field));
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") void this.#commit(name, field);
      if (event.key === "Escape") this.#revert(field);
    });
    input.setAttribute("aria-label", `${label} of order ${this.#id}`);
    return element("div", { className: "field" }, element("label", { htmlFor: id, text: label }), input);
  }

  /** Show a saved value, unless the user has typed something else. @param {Field} field @param {string} value */
  #show(field, value) {
    if (field.input.value !== field.seen && field.input.value !== value) return;
    field.seen = value;
    field.input.value = value;
    field.input.title = value;
  }

  /** @param {Field} field */
  #revert(field) {
    field.input.value = field.seen;
    this.#conflict.hidden = true;
    this.article.focus();
  }

  /** @param {string} name @param {Field} field */
  async #commit(name, field) {
    if (field.saving) {
      field.again = true;
      return;
    }
    const value = field.input.value.trim();
    if (value === field.seen) return;
    field.saving = true;
    field.again = false;
    const outcome = await this.#actions.edit(this.#id, name, value, field.seen);
    field.saving = false;
    if (outcome.saved) field.seen = value;
    // The user has seen it now. The typed text stays.
    else if (outcome.theirs !== undefined) field.seen = outcome.theirs;
    this.#conflict.hidden = outcome.theirs === undefined;
    this.#conflict.textContent =
      outcome.theirs === undefined ? "" : `${outcome.who} wrote “${outcome.theirs}” meanwhile. Enter keeps yours, Esc takes theirs.`;
    if (outcome.saved && field.again) void this.#commit(name, field);
  }

  #flash() {
    // Each restart makes the browser lay out the page, which is too slow for every event of a burst.
    const nowMs = performance.now();
    if (nowMs - this.#flashedMs < FLASH_EVERY_MS) return;
    this.#flashedMs = nowMs;
    this.article.classList.remove("fresh");
    void this.article.offsetWidth; // restarts the animation
    this.article.classList.add("fresh");
  }
}

/** @param {Order} order */
function factsOf({ items, scans }) {
  const parts = [];
  if (items) parts.push(`${items} ${items === 1 ? "item" : "items"}`);
  if (scans) parts.push(`${scans} ${scans === 1 ? "scan" : "scans"}`);
  return parts.join(" · ");
}

/** @param {string} word */
function capital(word) {
  return word[0].toUpperCase() + word.slice(1);
}

/** Show a button with the word and the full name of its present action, or hide it. @param {HTMLButtonElement} button @param {string | false | null} label @param {string} word */
function offer(button, label, word) {
  button.textContent = word;
  button.disabled = button.hidden = !label;
  button.title = label || "";
  button.setAttribute("aria-label", label || "");
}
