/**
 * Edits: it saves a user's changes over HTTP, with the version that the user saw.
 *
 * In: an edit of one field, a deletion, an undo. Out: the saved order, set into the collection at once (the event that follows
 * changes nothing), or the reason of the failure. If someone else changed another field of the same order, the edit is tried again
 * on the new version; if someone else changed the same field, the user decides.
 *
 * @import { Shop } from "./shop.js"
 * @typedef {{ saved: boolean, theirs?: string, who?: string }} EditOutcome
 * @typedef {{ restored: boolean, title: string, detail: string, again: boolean }} Restored `again`: another attempt can help
 */
import { ShopError } from "./shop.js";

/** Final refusals: the order is back, was deleted again, or is forgotten. */
const FINAL = [400, 404, 409];
/** During a burst an order changes with every round trip; each attempt starts from the version in the last answer. */
const MAX_ATTEMPTS = 8;

export class Edits {
  /**
   * @param {Shop} shop
   * @param {any} orders a Backbone collection
   * @param {(title: string, detail: string) => void} complain
   * @param {Record<string, string>} names
   */
  constructor(shop, orders, complain, names) {
    this.shop = shop;
    this.orders = orders;
    this.complain = complain;
    this.names = names;
  }

  /**
   * Save one field of an order.
   * @param {string} id
   * @param {string} field
   * @param {string} value
   * @param {string} seen the value that the user saw before
   * @returns {Promise<EditOutcome>}
   */
  async change(id, field, value, seen) {
    let now = this.orders.get(id)?.attributes ?? {};
    for (let attempt = 1; ; attempt++) {
      const theirs = now[field];
      if (theirs !== undefined && theirs !== seen && theirs !== value) return { saved: false, theirs, who: this.#nameOf(now.by) };
      try {
        this.orders.accept(await this.shop.change(id, { version: now.version ?? 0, [field]: value }));
        return { saved: true };
      } catch (error) {
        const current = currentOf(error);
        if (!current || attempt === MAX_ATTEMPTS) return this.#failed(`Order ${id} was not saved`, error);
        this.orders.accept(current);
        now = current;
      }
    }
  }

  /** @param {string} id @returns {Promise<import("./deletions.js").Deletion | undefined>} the deletion, if it can be undone */
  async remove(id) {
    let version = this.orders.get(id)?.get("version") ?? 0;
    for (let attempt = 1; ; attempt++) {
      try {
        const gone = /** @type {import("./deletions.js").Deletion} */ (await this.shop.remove(id, version));
        this.orders.discard(id);
        return gone;
      } catch (error) {
        const current = currentOf(error);
        // The shop does not know the order: it came from an event alone, and goes from this board only.
        if (error instanceof ShopError && error.status === 404) return this.orders.discard(id);
        if (!current || attempt === MAX_ATTEMPTS) return void this.#failed(`Order ${id} was not deleted`, error);
        version = current.version;
      }
    }
  }

  /** Undo a deletion, for all users. @param {import("./deletions.js").Deletion} deletion @returns {Promise<Restored>} */
  async restore({ id, version }) {
    try {
      this.orders.welcome(await this.shop.restore(id, version));
      return { restored: true, title: "", detail: "", again: false };
    } catch (error) {
      if (!(error instanceof ShopError)) throw error;
      const current = currentOf(error);
      if (!current) return { restored: false, title: `Order ${id} was not restored`, detail: error.message, again: !FINAL.includes(error.status) };
      this.orders.welcome(current);
      return { restored: false, title: `Order ${id} is back already`, detail: `${this.#nameOf(current.by)} changed it last.`, again: false };
    }
  }

  async create() {
    try {
      this.orders.welcome(await this.shop.create());
    } catch (error) {
      this.#failed("No order was created", error);
    }
  }

  /** @param {string} user */
  #nameOf(user) {
    return Object.hasOwn(this.names, user) ? this.names[user] : user || "someone";
  }

  /** @param {string} title @param {unknown} error @returns {EditOutcome} */
  #failed(title, error) {
    if (!(error instanceof ShopError)) throw error;
    this.complain(title, error.message);
    return { saved: false };
  }
}

/** @param {unknown} error @returns {Record<string, any> | undefined} the present order, if its version was the reason */
function currentOf(error) {
  return error instanceof ShopError ? error.refusal.current : undefined;
}
