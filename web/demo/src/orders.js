/**
 * The orders: a LiveCollection of the topics `orders.<id>.<verb>`.
 *
 * In: the shop's list, every event, answers to this page's own edits. Out: Backbone's `add`, `change`, `remove`, which the
 * board shows. The three may arrive in any order; the collection keeps the highest version, and fetches again when events are
 * lost for good.
 *
 * @import { Shop } from "./shop.js"
 */
import { LiveCollection, LiveModel } from "headgate/backbone";
import { changeOf, UNKNOWN } from "./order.js";

const PATTERN = "orders.*.*";
/** Most orders on the board. Beyond it, no event adds an order. */
const MAX_ORDERS = 300;

export class Order extends LiveModel {
  defaults() {
    return UNKNOWN;
  }
}

export class Orders extends LiveCollection {
  pattern = PATTERN;
  live = false;
  /** Number of times that the board went live. An answer from before the last time is stale and would undo newer events. */
  #times = 0;

  /** @param {Shop} shop @param {any} gate */
  constructor(shop, gate) {
    super([], { model: Order });
    this.shop = shop;
    this.gate = gate;
  }

  /** Follow the events, starting from the present orders. */
  goLive() {
    this.live = true;
    this.follow(this.gate, { topic: "orders", pattern: PATTERN, mapping: ({ topic, data }) => this.#read(topic, data) });
    this.#times++;
    // Fetch now, so that the board shows without a gateway. The collection fetches again once it can miss no event any more.
    this.fetch();
  }

  goStill() {
    this.live = false;
    this.unfollow();
  }

  /** Merge the shop's answer into an order of this board, unless the board has a newer version. @param {Record<string, any>} order */
  accept(order) {
    this.applyLive({ op: "merge", id: order.id, attributes: order }, /** @type {any} */ (undefined));
  }

  /** Add an order that the shop has just made. @param {Record<string, any>} order */
  welcome(order) {
    this.applyLive({ op: "upsert", id: order.id, attributes: order }, /** @type {any} */ (undefined));
  }

  /** Remove an order that the shop has deleted or never had. @param {string} id */
  discard(id) {
    this.applyLive({ op: "remove", id }, /** @type {any} */ (undefined));
  }

  /**
   * Backbone's hook for `fetch`; Backbone's own version needs jQuery.
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

  /** Replace the orders after a restart of the shop. */
  startOver() {
    // A board that is not live fetches when it goes live.
    if (this.live) this.fetch();
  }

  /** @param {string} topic @param {any} data */
  #read(topic, data) {
    const change = changeOf(topic, data);
    // A page that catches up after a restart of the shop still receives events of the orders before it.
    if (change.attributes.version < this.shop.since) return { ...change, op: /** @type {const} */ ("ignore") };
    // `merge` adds no order: a flood of unknown numbers cannot fill the page.
    return change.op === "upsert" && this.length >= MAX_ORDERS ? { ...change, op: /** @type {const} */ ("merge") } : change;
  }
}
