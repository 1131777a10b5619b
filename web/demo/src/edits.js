/**
 * Edits: what a person changes, saved over HTTP with the version that was seen.
 *
 * In: an edit of one field, a deletion, its undoing. Out: the order as saved, set into the collection at once (the event that
 * follows says the same and changes nothing), or what stood in the way. When someone else changed another field of the same order, the
 * edit is tried again on what the order is now; when it was this very field, the person decides.
 *
 * @import { Shop } from "./shop.js"
 * @typedef {{ saved: boolean, theirs?: string, who?: string }} EditOutcome
 * @typedef {{ restored: boolean, title: string, detail: string, again: boolean }} Restored `again`: to try again can help
 */
import { ShopError } from "./shop.js";

/** Refusals that stand: the order is back, was deleted anew, or is forgotten. */
const FINAL = [400, 404, 409];
/** Under a burst an order changes with every round trip; each attempt starts from what the last answer said. */
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
   * @param {string} seen what the person saw there before
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

  /** @param {string} id @returns {Promise<import("./deletions.js").Deletion | undefined>} what can be undone */
  async remove(id) {
    let version = this.orders.get(id)?.get("version") ?? 0;
    for (let attempt = 1; ; attempt++) {
      try {
        const gone = /** @type {import("./deletions.js").Deletion} */ (await this.shop.remove(id, version));
        this.orders.discard(id);
        return gone;
      } catch (error) {
        const current = currentOf(error);
        // An order that the shop does not know came from an event alone: it goes from this board only.
        if (error instanceof ShopError && error.status === 404) return this.orders.discard(id);
        if (!current || attempt === MAX_ATTEMPTS) return void this.#failed(`Order ${id} was not deleted`, error);
        version = current.version;
      }
    }
  }

  /** Undo a deletion, for everybody. @param {import("./deletions.js").Deletion} deletion @returns {Promise<Restored>} */
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

/** @param {unknown} error @returns {Record<string, any> | undefined} the order as it is now, when that was the trouble */
function currentOf(error) {
  return error instanceof ShopError ? error.refusal.current : undefined;
}
