/**
 * AnyIdCollection: Backbone's collection, in which every text is an id like any other.
 *
 * Ids come from topics and events, so from any publisher. Backbone keeps its index in a plain object, where `constructor` and
 * `__proto__` are taken; it looks a model without an id up as `undefined`; and it lets attributes named `cid`, `idAttribute` or
 * `toString` take part in the search. Here attributes are found by their id alone.
 */
import Backbone from "backbone";
import { extend } from "./extend.js";

/** In front of a number, it makes a `cid` that is neither a word of a topic nor an event's id: both kinds of names share the index. */
export const CID_PREFIX = "c/";

export class AnyIdCollection extends Backbone.Collection {
  static extend = extend;

  /**
   * Return a model, as Backbone's.
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

  /** Backbone's own name for the method that makes its index. @protected */
  _reset() {
    /** @type {any} */ (Backbone.Collection.prototype)._reset.call(this);
    Object.assign(this, { _byId: Object.create(null) });
  }
}
