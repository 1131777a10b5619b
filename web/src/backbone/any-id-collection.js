/**
 * AnyIdCollection: a Backbone collection in which every text is a valid id.
 *
 * Ids come from topics and events, so any publisher chooses them. Backbone keeps its index in a plain object, where `constructor` and `__proto__` are taken. It
 * looks up a model without an id as `undefined`, and attributes named `cid`, `idAttribute` or `toString` affect the search. Here attributes are found only by
 * their id.
 */
import Backbone from "backbone";
import { extend } from "./extend.js";

/** Prefix of a `cid`, so that none is a word of a topic or an event's id. Ids and `cid`s share one index. */
export const CID_PREFIX = "c/";

export class AnyIdCollection extends Backbone.Collection {
  static extend = extend;

  /**
   * Return a model, as Backbone's `get`.
   * @param {any} key an id, a cid, a model, or attributes
   * @returns {any}
   */
  get(key) {
    const { _byId: index } = /** @type {any} */ (this);
    if (key === null || key === undefined) return undefined;
    if (typeof key !== "object") return index[key];
    const isModel = key instanceof Backbone.Model;
    const id = isModel ? /** @type {any} */ (this).modelId(key.attributes, key.idAttribute) : this.modelId(key);
    const hasId = id !== null && id !== undefined;
    return (hasId && index[id]) || ((isModel || !hasId) && key.cid && index[key.cid]) || undefined;
  }

  /** Backbone's method that makes the index. @protected */
  _reset() {
    /** @type {any} */ (Backbone.Collection.prototype)._reset.call(this);
    Object.assign(this, { _byId: Object.create(null) });
  }
}
