/**
 * Rules by which a LiveModel and a LiveCollection read events: the convention of topics, versions, and attributes that no event may set. Pure functions.
 * follow.js decides when they fetch again.
 *
 * The convention is `<prefix>.<id>.<verb>`. `created` and `updated` have the attributes of a model that may be new. `deleted`, `removed` and `destroyed`
 * remove it. Any other verb (`shipped`) has attributes for an existing model. Data other than an object changes nothing.
 *
 * @import { Gate, HeadgateEvent } from "../gate.js"
 * @typedef {{ op: "upsert" | "merge" | "remove" | "ignore", id?: any, attributes?: Record<string, any> }} Change
 *   `upsert`: add or update; `merge`: update an existing model
 * @typedef {(event: HeadgateEvent) => Change | null | undefined} Mapping
 *
 * @typedef {object} LiveOptions
 * @property {Gate} [gate]
 * @property {string} [topic] prefix of the topics, such as `orders`
 * @property {Mapping} [mapping] instead of the convention
 * @property {string} [versionAttribute] default `version`
 * @property {number} [resyncSpreadMs] default 1000: a fetch after a loss waits a random time up to this, so that pages do not all ask the server at once, and
 *   several losses cost one fetch
 * @property {boolean} [refetch] default true; false: the library never fetches by itself, neither when the subscription is acknowledged nor after a loss
 */

const REMOVED = new Set(["deleted", "removed", "destroyed"]);
const COMPLETE = new Set(["created", "updated"]);

/**
 * Return the convention's mapping for a prefix.
 * @param {string} prefix
 * @returns {Mapping}
 */
export function byConvention(prefix) {
  const depth = prefix.split(".").length;
  return ({ topic, data }) => {
    const words = topic.split(".");
    const verb = words[words.length - 1];
    if (words.length !== depth + 2) return null;
    const attributes = data !== null && typeof data === "object" && !Array.isArray(data) ? data : undefined;
    const id = words[depth];
    if (REMOVED.has(verb)) return { op: "remove", id, attributes };
    if (!attributes) return null;
    return { op: COMPLETE.has(verb) ? "upsert" : "merge", id, attributes };
  };
}

/**
 * Return whether the version of attributes is not newer than the present one. An object is not a version.
 * @param {Record<string, any> | undefined} attributes
 * @param {Record<string, any>} present
 * @param {string} key
 * @param {boolean} [equalIsStale]
 */
export function isStale(attributes, present, key, equalIsStale = true) {
  const [comes, is] = [attributes?.[key], present[key]];
  if (!isVersion(comes) || !isVersion(is)) return false;
  return equalIsStale ? comes <= is : comes < is;
}

/**
 * Return the attributes of an event without those that would break a model: `__proto__`, which Backbone would make the prototype of the attributes, and an
 * id that is neither a text nor a number.
 * @param {Record<string, any>} attributes
 * @param {string} idAttribute
 * @returns {Record<string, any>}
 */
export function sound(attributes, idAttribute) {
  const id = attributes[idAttribute];
  const hasId = typeof id === "string" || typeof id === "number";
  return Object.fromEntries(Object.entries(attributes).filter(([name]) => name !== "__proto__" && (hasId || name !== idAttribute)));
}

/**
 * Return Backbone options that call `ended` once, when the request is over and Backbone has used the answer, before the caller's own callback.
 * @param {any} options @param {(ok?: boolean) => void} ended
 * @returns {any} with `finish`, for a request that gets no answer
 */
export function whenEnded(options, ended) {
  const { success, error } = options ?? {};
  let over = false;
  const finish = (ok = false) => {
    if (over) return;
    over = true;
    ended(ok);
  };
  /** @param {boolean} ok @param {((...args: any[]) => void) | undefined} callback @returns {(...args: any[]) => void} */
  const around = (ok, callback) => (...args) => {
    finish(ok);
    callback?.apply(options?.context, args);
  };
  return { ...options, finish, success: around(true, success), error: around(false, error) };
}

/** @param {any} value */
function isVersion(value) {
  return value !== undefined && value !== null && (typeof value !== "object" || value instanceof Date);
}
