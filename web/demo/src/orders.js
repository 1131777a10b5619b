/**
 * The orders: a LiveCollection of the topics `orders.<id>.<verb>`.
 *
 * In: the shop's list, every event, answers to this page's own edits. Out: Backbone's `add`, `change`, `remove`, which the
 * board shows. Versions decide between the three, whatever order they come in; the collection sees to that, and fetches
 * again when events were lost for good.
 *
 * @import { Shop } from "./shop.js"
 */
import { LiveCollection, LiveModel } from "headgate/backbone";
import { changeOf, UNKNOWN } from "./order.js";

const PATTERN = "orders.*.*";
/** Orders that only events have told of count too; beyond this no more of those are taken in. */
const MAX_ORDERS = 300;

export class Order extends LiveModel {
  defaults() {
    return UNKNOWN;
  }
}

export class Orders extends LiveCollection {
  pattern = PATTERN;
  live = false;
  /** How often it has gone live: an answer from before the last time would undo what has come since. */
  #times = 0;

  /** @param {Shop} shop @param {any} gate */
  constructor(shop, gate) {
    super([], { model: Order });
    this.shop = shop;
    this.gate = gate;
  }

  /** Follow the events, from the orders as they are now. */
  goLive() {
    this.live = true;
    this.follow(this.gate, { topic: "orders", pattern: PATTERN, mapping: ({ topic, data }) => this.#read(topic, data) });
    this.#times++;
    // Now, so that the board shows without a gateway; the collection fetches once more when no event can be missed any longer.
    this.fetch();
  }

  goStill() {
    this.live = false;
    this.unfollow();
  }

  /** Take what the shop has answered about an order that is here, unless something newer is. @param {Record<string, any>} order */
  accept(order) {
    this.applyLive({ op: "merge", id: order.id, attributes: order }, /** @type {any} */ (undefined));
  }

  /** Take an order that the shop has just made. @param {Record<string, any>} order */
  welcome(order) {
    this.applyLive({ op: "upsert", id: order.id, attributes: order }, /** @type {any} */ (undefined));
  }

  /** Let go of an order that the shop has deleted, or never had. @param {string} id */
  discard(id) {
    this.applyLive({ op: "remove", id }, /** @type {any} */ (undefined));
  }

  /**
   * Backbone's hook for `fetch`: its own wants jQuery.
   * @override
   * @param {string} _method always `read`
   * @param {any} _collection
   * @param {any} options Backbone's, with `success` and `error`
   * @returns {any}
   */
  sync(_method, _collection, { success, error }) {
    const time = this.#times;
    return this.shop.orders().then((orders) => time === this.#times && success(orders), error);
  }

  /** Let go of the orders that a restart of the shop has ended: it has others now. */
  startOver() {
    // A board that is not live asks when it is live again.
    if (this.live) this.fetch();
  }

  /** @param {string} topic @param {any} data */
  #read(topic, data) {
    const change = changeOf(topic, data);
    // A page that catches up after a restart of the shop is told of the orders that the restart has ended.
    if (change.attributes.version < this.shop.since) return { ...change, op: /** @type {const} */ ("ignore") };
    // `merge` leaves alone what is not here: no stranger's flood of numbers fills the page.
    return change.op === "upsert" && this.length >= MAX_ORDERS ? { ...change, op: /** @type {const} */ ("merge") } : change;
  }
}
