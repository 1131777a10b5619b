/** Payloads: what may be published, as strict JSON, measured in UTF-8 bytes. Pure functions. */
import { notSerializable, payloadTooLarge } from "./errors.js";

/**
 * Return `data` as plain JSON data: what JSON.stringify makes of it, but refusing what it would silently change.
 * @param {unknown} data
 * @param {number} limitBytes of JSON text
 * @returns {any}
 * @throws {HeadgateError} `not_serializable` (NaN, infinity, bigint, a cycle, undefined); `payload_too_large`
 */
export function checkPayload(data, limitBytes) {
  /** @type {string | undefined} */
  let text;
  try {
    text = JSON.stringify(data, (_key, value) => {
      if (typeof value === "number" && !Number.isFinite(value)) throw new TypeError(`${value} is not a JSON number`);
      return value;
    });
  } catch (error) {
    throw notSerializable(/** @type {Error} */ (error).message);
  }
  if (text === undefined) throw notSerializable(`${typeof data} has no JSON form`);
  const size = new TextEncoder().encode(text).length;
  if (size > limitBytes) throw payloadTooLarge(size, limitBytes);
  // Parsed again, so that what is sent is what was measured: Socket.IO would take an ArrayBuffer for a binary attachment.
  return JSON.parse(text);
}
