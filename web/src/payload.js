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
  checkSize(text, limit);
  // Parsed again, so that the data that was measured is sent: Socket.IO would take an ArrayBuffer for a binary attachment.
  return JSON.parse(text);
}

/** Refuse a text that is longer in UTF-8. @param {string} text @param {number} limit @throws {HeadgateError} `payload_too_large` */
export function checkSize(text, limit) {
  const { size } = new Blob([text]);
  if (size > limit) throw new HeadgateError("payload_too_large", { size, limit, where: "browser" });
}
