/**
 * Backbone's `extend` for parents that are ES classes, which Backbone's own cannot call (it uses `parent.apply`). Both ways of subclassing work, also mixed:
 * `LiveModel.extend({…})`, `class Order extends LiveModel {}`.
 *
 * @this {any} the parent
 * @param {Record<string, any>} [properties] of the prototype; a `constructor` must be a class that extends the parent
 * @param {Record<string, any>} [statics]
 * @returns {any}
 */
export function extend(properties = {}, statics) {
  const Child = Object.hasOwn(properties, "constructor") ? properties.constructor : class extends this {};
  const { constructor: _, ...own } = properties;
  Object.assign(Child.prototype, own);
  return Object.assign(Child, statics, { __super__: this.prototype });
}
