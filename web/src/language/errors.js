/**
 * The only error class of the client, with the codes, texts and parts of the gateway's error tree (gateway/headgate/errors.py).
 *
 * `code` is the word on the wire. `retry` says whether trying the same again can help. `parts` are the numbers and names that the message is built from
 * (`size`, `limit`, `where`, …). docs/protocol.md lists the codes, among them those that only the client makes. The text is a sentence in development
 * (explain.js), and otherwise consists of the code and the parts.
 */

import { asText } from "./as-text.js";
import { textOf } from "./explain.js";
import { camelCase } from "./field-names.js";

export class HeadgateError extends Error {
  // A field, because a page may have frozen the prototype of errors, which prevents an assignment to an inherited name.
  name = "HeadgateError";

  /**
   * @param {string} code wire word
   * @param {Record<string, any>} [given] parts
   * @param {boolean} [retry]
   * @param {string} [message] default: a sentence in development, else code and parts, such as `payload_too_large, size: 70000, limit: 65536, where: browser`
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
 * Return a refusal of the wire as an error.
 * @param {any} refusal `{code, message, retry, …parts}`; anything else gets the code `refused`
 */
export function fromWire(refusal) {
  const { code = "refused", message, retry, ...parts } = Object(camelCase(refusal));
  return new HeadgateError(code, parts, retry, textOf(code, parts, retry, message) ?? message);
}

/** @param {Record<string, any>} [parts] */
export function disconnected(parts) {
  return new HeadgateError("disconnected", parts, true);
}
