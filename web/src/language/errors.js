/**
 * The one error of the client: the same code, text and parts as the gateway's error tree (gateway/headgate/errors.py).
 *
 * `code` is the word that travels on the wire, `retry`: trying the same thing again can help, `parts` are the
 * numbers and names that the message is built from (`size`, `limit`, `where`, …). Codes that only the browser knows:
 * `disconnected` (no connection now), `unreachable` (an attempt to connect came to nothing), `timeout` (no acknowledgement in time), `closed` (the gate was closed), `token_unavailable` (the token
 * function failed), `refused` (a refusal without a code of ours). The text is a sentence in development (explain.js), else made of the code and the parts.
 */

import { asText } from "./as-text.js";
import { textOf } from "./explain.js";
import { camelCase } from "./field-names.js";

export class HeadgateError extends Error {
  // A field: a page may have frozen the prototype of errors, and with it the names of those that inherit.
  name = "HeadgateError";

  /**
   * @param {string} code wire word
   * @param {Record<string, any>} [given] parts
   * @param {boolean} [retry]
   * @param {string} [message] undefined: a sentence in development, else made of code and parts: `payload_too_large, size: 70000, limit: 65536, where: browser`
   * @param {unknown} [cause]
   */
  constructor(code, given, retry = false, message, cause) {
    /** @type {Record<string, any>} */
    const parts = Object(given);
    const text = message ?? textOf(code, parts, retry) ?? Object.entries(parts).reduce((all, [name, value]) => `${all}, ${name}: ${asText(value)}`, code);
    super(text, /** @type {any} */ (cause && { cause }));
    this.code = code;
    this.retry = retry;
    this.parts = parts;
  }
}

/**
 * Return the error that a refusal on the wire describes.
 * @param {any} refusal `{code, message, retry, …parts}` of the wire; anything else becomes code `refused`
 */
export function fromWire(refusal) {
  const { code = "refused", message, retry, ...parts } = Object(camelCase(refusal));
  return new HeadgateError(code, parts, retry, textOf(code, parts, retry, message) ?? message);
}

/** @param {Record<string, any>} [parts] */
export function disconnected(parts) {
  return new HeadgateError("disconnected", parts, true);
}
