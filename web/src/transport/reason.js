/**
 * Reasons: why an attempt to connect failed, in words, from the answer of any server. Pure functions.
 *
 * "websocket error" does not help. Where the answer to an HTTP request can be read (a WebSocket's refusal is hidden from pages), a gateway's
 * is the error in it, and the reason of any other server is in its words: the message of a JSON answer, else the HTTP status. Nothing else of an
 * answer is repeated: it may be a proxy's whole page. Where nothing can be read, a page of another origin may not be allowed to.
 */

/** Most characters quoted of a server's answer. */
const MAX_WORDS = 200;

/**
 * Return why an attempt failed, and after how many seconds to ask the server again, if it named a time.
 * @param {number} status of HTTP; 0: a redirect that was not followed
 * @param {string} text the answer's body
 * @param {string | null} [retryAfter] the header; null where the gateway is another origin and the header is not exposed
 * @returns {{ reason: string, retryAfterS?: number, error?: any }} `error`: of the wire
 */
export function reasonOf(status, text, retryAfter) {
  const { error, message, ...body } = bodyOf(text);
  const words = typeof message === "string" && message.slice(0, MAX_WORDS);
  const retry_after_s = error?.retry_after_s ?? body.retry_after_s ?? (Number(retryAfter) || undefined);
  return {
    reason: words ? `${words} (HTTP ${status})` : `HTTP ${status || "redirect"}`,
    retryAfterS: retry_after_s,
    error: error?.code && { ...error, retry_after_s },
  };
}

/** Add to the reason of a failure without an answer what a page may not know. @param {string} address of the gateway @param {string} reason */
export function unanswered(address, reason) {
  // Not that of its address: a frame in a sandbox has the origin `null`.
  const { origin } = globalThis;
  const isOther = origin && origin !== new URL(address).origin;
  return isOther ? `${reason}: no answer, or the gateway may not allow the origin ${origin} (HEADGATE_ALLOWED_ORIGINS)` : reason;
}

/** Return the object that a text is as JSON, or an empty one. @param {string} text */
export function bodyOf(text) {
  try {
    return Object(JSON.parse(text));
  } catch {
    return {};
  }
}
