/**
 * The orders of one pane, in step with the shop's: loaded, then followed (`load`), and changed.
 *
 * In: the shop's list, events of `orders.<id>.<verb>`, the user's changes. Out: `changed(order)` and `removed(id)`. An answer and the event of the
 * same change may arrive in any order; the higher version counts. A fetch replaces everything, as it does after the log was rolled back.
 *
 * @import { Change, Order } from "./order.js"
 * @import { Shop } from "./shop.js"
 */
import { changeOf, merged } from "./order.js";
import { ShopError } from "./shop.js";

/** Beyond it, no event adds an order. */
const MAX_ORDERS = 300;
/** During a burst an order changes with every round trip; each attempt starts from the version in the last answer. */
const MAX_ATTEMPTS = 8;

export class Orders {
  /** @type {Map<string, Order>} */
  #orders = new Map();
  /** Versions of deletions: an older event brings no order back. @type {Map<string, number>} */
  #gone = new Map();

  /**
   * @param {Shop} shop
   * @param {(pattern: string, fetch: () => Promise<any>, options: any) => unknown} follow `load` of a gate
   * @param {{ changed: (order: Order) => void, removed: (id: string) => void, loaded: () => void }} shown
   */
  constructor(shop, follow, shown) {
    this.shop = shop;
    this.shown = shown;
    follow("orders.*.*", () => shop.get("/demo/orders"), {
      reset: (/** @type {Order[]} */ orders) => this.#reset(orders),
      apply: (/** @type {any} */ data, /** @type {any} */ { topic }) => this.#take(changeOf(topic, data)),
      changed: (/** @type {any} */ { status, error }) => {
        if (status === "failed") console.error("the orders could not be loaded", error);
      },
    });
  }

  /** @param {string} id */
  get(id) {
    return this.#orders.get(id);
  }

  async create() {
    this.accept(await this.shop.send("POST", "/demo/orders"));
  }

  /**
   * Save one field of an order. If someone else changed another field, it is tried again on the new version.
   * @param {string} id @param {"status" | "note"} field @param {string} value @param {string} seen the value that the user saw before
   * @returns {Promise<Order | undefined>} the order of the one who changed the same field first: nothing was saved
   */
  async change(id, field, value, seen) {
    for (let attempt = 1; ; attempt++) {
      const now = this.#orders.get(id);
      if (now && now[field] !== seen && now[field] !== value) return now;
      try {
        this.accept(await this.shop.send("PUT", pathOf(id), { version: now?.version ?? 0, [field]: value }));
        return undefined;
      } catch (error) {
        if (!this.#learnt(error) || attempt === MAX_ATTEMPTS) throw error;
      }
    }
  }

  /** Delete an order. @param {string} id @returns {Promise<Order | undefined>} it, where the deletion can be undone */
  async remove(id) {
    for (let attempt = 1; ; attempt++) {
      try {
        const gone = await this.shop.send("DELETE", pathOf(id), { version: this.#orders.get(id)?.version ?? 0 });
        this.#take({ op: "remove", id, fields: gone });
        return gone;
      } catch (error) {
        // The shop does not know an order that came from an event alone: it goes from this board only.
        if (error instanceof ShopError && error.status === 404) return void this.#take({ op: "remove", id, fields: {} });
        if (!this.#learnt(error) || attempt === MAX_ATTEMPTS) throw error;
      }
    }
  }

  /** Undo a deletion. @param {Order} gone @returns {Promise<Order | undefined>} the order, if someone else has restored it before */
  async restore({ id, version = 0 }) {
    try {
      this.accept(await this.shop.send("POST", `${pathOf(id)}/restore`, { version }));
    } catch (error) {
      if (!this.#learnt(error)) throw error;
      return this.#orders.get(id);
    }
  }

  /** Take the shop's answer. @param {Order} order */
  accept(order) {
    this.#take({ op: "upsert", id: order.id, fields: order });
  }

  /** Take the present order from a refusal, whatever its version is. @param {unknown} error @returns {boolean} whether it had one */
  #learnt(error) {
    const current = /** @type {Order | undefined} */ (error instanceof ShopError ? error.refusal.current : undefined);
    if (!current) return false;
    this.#orders.set(current.id, current);
    this.shown.changed(current);
    return true;
  }

  /** @param {Change} change */
  #take({ op, id, fields }) {
    const before = this.#orders.get(id);
    const { version = Infinity } = fields;
    if (op === "remove") {
      if (Number.isFinite(version)) this.#gone.set(id, Math.max(version, this.#gone.get(id) ?? 0));
      if (this.#gone.size > MAX_ORDERS) this.#gone.delete(/** @type {string} */ (this.#gone.keys().next().value));
      if (before && version >= (before.version ?? 0) && this.#orders.delete(id)) this.shown.removed(id);
    } else if (op === "upsert" && (before || this.#orders.size < MAX_ORDERS) && version > (this.#gone.get(id) ?? 0)) {
      const order = merged(before, { op, id, fields });
      this.#orders.set(id, order);
      if (order !== before) this.shown.changed(order);
    }
  }

  /** @param {Order[]} orders */
  #reset(orders) {
    const kept = new Set(orders.map(({ id }) => id));
    for (const id of [...this.#orders.keys()]) if (!kept.has(id) && this.#orders.delete(id)) this.shown.removed(id);
    this.#gone.clear();
    for (const order of orders) {
      this.#orders.set(order.id, order);
      this.shown.changed(order);
    }
    this.shown.loaded();
  }
}

/** @param {string} id */
const pathOf = (id) => `/demo/orders/${encodeURIComponent(id)}`;
