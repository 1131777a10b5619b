/** Payloads: data to publish, as strict JSON, measured in UTF-8 bytes. Pure functions. */
import { HeadgateError } from "./errors.js";

/**
 * Return `data` as plain JSON data, as JSON.stringify makes it, but refuse values that it would silently change.
 * @param {unknown} data
 * @param {number} [limit] bytes of JSON text
 * @returns {any}
 * @throws {HeadgateError} `not_serializable` (NaN, infinity, bigint, a cycle, undefined); `payload_too_large`
 */
export function checkPayload(data, limit = Infinity) {
  let text = "";
  try {
    text = JSON.stringify(data, (_key, value) => {
      if ([NaN, Infinity, -Infinity].includes(value)) throw TypeError(/** @type {any} */ (value));
      return value;
    });
    if (!text) throw TypeError(typeof data);
  } catch (/** @type {any} */ error) {
    throw new HeadgateError("not_serializable", { reason: error.message }, false, undefined, error);
  }
  const size = byteLength(text);
  if (size > limit) throw new HeadgateError("payload_too_large", { size, limit, where: "browser" });
  // Parsed again, so that the data that was measured is sent: Socket.IO would take an ArrayBuffer for a binary attachment.
  return JSON.parse(text);
}

/** Return the length of a text in UTF-8. @param {string} text */
export function byteLength(text) {
  return new Blob([text]).size;
}
