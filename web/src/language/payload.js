/** Payloads: data to publish, as strict JSON, measured in UTF-8 bytes. Pure functions. */
import { HeadgateError } from "./errors.js";
import { checkRule } from "./options.js";

/** Objects in each other that the gateway takes (gateway/headgate/events/event.py). */
const MAX_DEPTH = 64;
/** JSON has no way to write it but an escape that UTF-8 has no place for. */
const HALF = /\p{Surrogate}/u;

/**
 * Return `data` as plain JSON data, but refuse every value that JSON would silently change. A `toJSON` method is asked first, as JSON.stringify does: a Date
 * becomes its text, a Backbone model its attributes.
 * @param {unknown} data
 * @param {number} [limit] bytes of JSON text
 * @returns {any}
 * @throws {HeadgateError} `not_serializable` {path, reason}: undefined, a function or symbol, NaN, an infinity, -0, a bigint, a lone surrogate, a hole
 *   of an array, a Map, Set, typed array or other object that is not plain, an object in itself; `payload_too_large`
 */
export function checkPayload(data, limit = Infinity) {
  checkRule("checkPayload: limit", [0, Infinity], limit);
  let plain;
  try {
    plain = plainOf(data, "$", "", []);
  } catch (/** @type {any} */ error) {
    // A getter or a toJSON of the application's.
    throw error instanceof HeadgateError ? error : new HeadgateError("not_serializable", { path: "$", reason: String(error) }, false, undefined, error);
  }
  checkSize(JSON.stringify(plain), limit);
  return plain;
}

/** Refuse a text longer than that in UTF-8. @param {string} text @param {number} limit @throws {HeadgateError} `payload_too_large` */
export function checkSize(text, limit) {
  const { size } = new Blob([text]);
  if (size > limit) throw new HeadgateError("payload_too_large", { size, limit, where: "browser" });
}

/**
 * Return a value as plain JSON data, in objects of our own: what was measured is sent, and Socket.IO would take an ArrayBuffer for a binary attachment.
 * @param {any} value @param {string} path @param {string} key its own in the object around it
 * @param {object[]} around the objects that it is in
 * @returns {any}
 */
function plainOf(value, path, key, around) {
  const refuse = (/** @type {unknown} */ reason) => {
    throw new HeadgateError("not_serializable", { path, reason: String(reason) });
  };
  const isDate = value instanceof Date;
  if (!ArrayBuffer.isView(value) && typeof value?.toJSON === "function") value = value.toJSON(key);
  if (isDate && value === null) refuse("an invalid date");
  const type = typeof value;
  if (HALF.test(type === "string" ? value : "")) refuse("a lone surrogate");
  if (value === null || type === "string" || type === "boolean" || (Number.isFinite(value) && !Object.is(value, -0))) return value;
  if (type !== "object") refuse(Object.is(value, -0) ? "-0" : type === "number" || value === undefined ? value : `a ${type}`);
  if (around.includes(value)) refuse("a cycle");
  if (around.length >= MAX_DEPTH) refuse(`deeper than ${MAX_DEPTH}`);
  const isArray = Array.isArray(value);
  const prototype = Object.getPrototypeOf(value);
  // A plain object of another page has another prototype.
  if (!isArray && prototype && Object.getPrototypeOf(prototype)) refuse(`of class ${prototype.constructor.name}`);
  const names = Object.keys(value);
  if (isArray && names.length > value.length) refuse("an array with names");
  if (Object.getOwnPropertySymbols({ ...value }).length) refuse("an object with a symbol");
  const within = [...around, value];
  // A hole of an array is undefined.
  if (isArray) return Array.from(value, (each, nth) => plainOf(each, `${path}[${nth}]`, `${nth}`, within));
  const member = (/** @type {string} */ name) => {
    const below = path + (/^[A-Za-z_]\w*$/.test(name) ? `.${name}` : `[${JSON.stringify(name)}]`);
    return [plainOf(name, below, "", []), plainOf(value[name], below, name, within)];
  };
  return Object.fromEntries(names.map(member));
}
