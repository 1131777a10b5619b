/**
 * The one error of the client: the same code, text and parts as the gateway's error tree (gateway/headgate/errors.py).
 *
 * `code` is the word that travels on the wire, `retry` says whether trying the same thing again can help, `parts` are the
 * numbers and names that the message is built from (`size`, `limit`, `where`, …). Codes that only the browser knows:
 * `disconnected` (no connection now), `timeout` (no acknowledgement in time), `closed` (the gate was closed), `token_unavailable` (the token
 * function failed), `refused` (a refusal without a code of ours).
 */

export class HeadgateError extends Error {
  /**
   * @param {string} code wire word
   * @param {string} message
   * @param {Record<string, any>} [parts]
   * @param {boolean} [retry]
   */
  constructor(code, message, parts = {}, retry = false) {
    super(message);
    this.name = "HeadgateError";
    this.code = code;
    this.retry = retry;
    this.parts = parts;
  }

  /**
   * Return the error that a refusal on the wire describes.
   * @param {any} refusal `{code, message, retry, …parts}`; anything else becomes code `refused`
   * @param {string} [message] text for a refusal that has none
   */
  static fromWire(refusal, message = "refused") {
    const { code, message: text, retry, ...parts } = refusal && typeof refusal === "object" ? refusal : {};
    return new HeadgateError(String(code ?? "refused"), String(text ?? message), parts, retry === true);
  }
}

/** @param {number} size bytes @param {number} limit bytes */
export function payloadTooLarge(size, limit) {
  const message = `payload of ${size} bytes is above the limit of ${limit} bytes (browser)`;
  return new HeadgateError("payload_too_large", message, { size, limit, where: "browser" });
}

/** @param {string} reason */
export function notSerializable(reason) {
  return new HeadgateError("not_serializable", `data is not JSON: ${reason}`, { reason });
}

/** @param {string} [reason] */
export function disconnected(reason = "not connected") {
  return new HeadgateError("disconnected", reason, {}, true);
}

export function closed() {
  return new HeadgateError("closed", "the gate is closed");
}
