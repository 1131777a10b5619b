/** Payloads: data to publish, as strict JSON, measured in UTF-8 bytes. Pure functions. */
import { HeadgateError } from "./errors.js";
import { checkRule } from "./options.js";

/** The deepest nesting that the gateway accepts (gateway/headgate/events/event.py). */
const MAX_DEPTH = 64;
/** A lone surrogate, which JSON can only write as an escape that UTF-8 cannot represent. */
const HALF = /\p{Surrogate}/u;

/**
 * Return a copy of `data` as plain JSON data. Refuse every value that JSON would silently change. A `toJSON` method is called first, as by JSON.stringify, so
 * a Date becomes its text and a Backbone model its attributes.
 * @param {unknown} data
 * @param {number} [limit] bytes of JSON text
 * @returns {any}
 * @throws {HeadgateError} `not_serializable` {path, reason}: undefined, a function or symbol, NaN, an infinity, -0, a bigint, a lone surrogate, a hole of an
 *   array, a Map, Set, typed array or other object that is not plain, a cycle, too deep a nesting; `payload_too_large`
 */
export function checkPayload(data, limit = Infinity) {
  checkRule("checkPayload: limit", [0, Infinity], limit);
  let plain;
  try {
    plain = plainOf(data, "$", "", []);
  } catch (/** @type {any} */ error) {
    // A getter or a toJSON of the application has thrown.
    throw error instanceof HeadgateError ? error : new HeadgateError("not_serializable", { path: "$", reason: String(error) }, false, undefined, error);
  }
  checkSize(JSON.stringify(plain), limit);
  return plain;
}

/** Refuse a text longer than a limit in UTF-8. @param {string} text @param {number} limit @throws {HeadgateError} `payload_too_large` */
export function checkSize(text, limit) {
  const { size } = new Blob([text]);
  if (size > limit) throw new HeadgateError("payload_too_large", { size, limit, where: "browser" });
}

/**
 * Return a value as plain JSON data, in new objects, so that what was measured is sent, and Socket.IO finds no ArrayBuffer to send as a binary attachment.
 * @param {any} value @param {string} path @param {string} key of the value in its object
 * @param {object[]} around the objects that contain it
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
  // A plain object of another realm, such as a frame, has another prototype.
  if (!isArray && prototype && Object.getPrototypeOf(prototype)) refuse(`of class ${prototype.constructor.name}`);
  const names = Object.keys(value);
  if (isArray && names.length > value.length) refuse("an array with names");
  if (Object.getOwnPropertySymbols({ ...value }).length) refuse("an object with a symbol");
  const within = [...around, value];
  // `Array.from` visits holes, as undefined.
  if (isArray) return Array.from(value, (each, nth) => plainOf(each, `${path}[${nth}]`, `${nth}`, within));
  const member = (/** @type {string} */ name) => {
    const below = path + (/^[A-Za-z_]\w*$/.test(name) ? `.${name}` : `[${JSON.stringify(name)}]`);
    return [plainOf(name, below, "", []), plainOf(value[name], below, name, within)];
  };
  return Object.fromEntries(names.map(member));
}
