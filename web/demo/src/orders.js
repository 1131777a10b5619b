/**
 * The orders: a Backbone collection that follows `orders.*.*`.
 *
 * In: the shop's list when it starts to follow, every event after that, answers to this page's own edits. Out: Backbone's
 * `add`, `change`, `remove`, which the board shows. The list is asked for again when the subscription is in force, so
 * nothing falls between them; versions decide between the list, events and answers, whatever order they come in.
 *
 * @import { Shop } from "./shop.js"
 */
import Backbone from "backbone";
import { changeOf, UNKNOWN } from "./order.js";

/** Orders that only events have told of count too; beyond this they are not taken in. */
const MAX_ORDERS = 300;
/** Numbers of deleted orders that are remembered, against a list that was made before the deletion. */
const MAX_GONE = 500;

export class Orders extends Backbone.Collection {
  pattern = "orders.*.*";
  following = false;
  /** @type {Set<string>} */
  #gone = new Set();

  /** @param {Shop} shop @param {any} gate */
  constructor(shop, gate) {
    super();
    this.shop = shop;
    this.gate = gate;
  }

  /** Follow the events, from the orders as they are now. */
  follow() {
    this.following = true;
    this.listenTo(this.gate, this.pattern, this.#take);
    this.listenTo(this.gate, "delivery:gap", (/** @type {any} */ gap) => gap.recoverable || void this.load());
    this.listenTo(this.gate, "connection:up", (/** @type {any} */ up) => up.resumed === false && void this.load());
    // Once now, so that the board shows without a gateway; once more when no event can be missed any longer.
    void this.load();
    this.gate.subscribed(this.pattern).then(
      () => this.load(),
      () => {}, // told as delivery:error
    );
  }

  unfollow() {
    this.following = false;
    this.stopListening(this.gate);
  }

  /** Ask the shop for all orders; what it no longer has goes. */
  async load() {
    try {
      const listed = await this.shop.orders();
      const ids = new Set(listed.map(({ id }) => id));
      for (const order of listed) if (!this.#gone.has(order.id)) this.accept(order);
      const started = Math.max(0, ...listed.map(({ version }) => version));
      this.remove(this.filter((order) => !ids.has(order.id) && order.get("version") <= started));
    } catch (error) {
      this.trigger("error", this, error);
    }
  }

  /** Take an order as the shop has it, unless a newer version is here. @param {Record<string, any>} order */
  accept(order) {
    const known = this.get(order.id);
    if (known && order.version <= known.get("version")) return;
    this.add(order, { merge: true });
  }

  /** @param {string} id */
  discard(id) {
    this.#gone.add(id);
    if (this.#gone.size > MAX_GONE) this.#gone.delete(/** @type {string} */ (this.#gone.values().next().value));
    this.remove(id);
  }

  /** @param {any} data @param {{ topic: string }} event */
  #take(data, { topic }) {
    const { op, id, attributes } = changeOf(topic, data);
    const known = this.get(id);
    if (op === "remove") this.discard(id);
    else if (op === "upsert" && attributes.version !== undefined) this.accept({ ...(known ? {} : UNKNOWN), ...attributes, id });
    else if (op === "upsert" && known) known.set(attributes);
    else if (op === "upsert" && this.length < MAX_ORDERS) this.add({ ...UNKNOWN, ...attributes, id });
  }
}
