/**
 * The reasons why an attempt to connect has failed, read from the answer of any server. Pure functions.
 *
 * "websocket error" does not help a developer, and browsers hide the refusal of a WebSocket from pages. The answer to an HTTP request has the error of
 * a gateway, or the JSON `message` or the HTTP status of another server. Nothing else of an answer is quoted, because it may be a proxy's whole page.
 * If nothing can be read, the gateway may not allow the page's origin.
 */

/** Most characters quoted of a server's answer. */
const MAX_WORDS = 200;

/**
 * Return why an attempt failed, and after how many seconds to ask the server again, if it named a time.
 * @param {number} status the HTTP status; 0: a redirect that was not followed
 * @param {string} text the answer's body
 * @param {string | null} [retryAfter] the header; null if another origin does not expose it
 * @returns {{ reason: string, retryAfterS?: number, error?: any }} `error`: as on the wire
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

/** Add to the reason of a failure without an answer that the gateway may not allow the page's origin. @param {string} address of the gateway @param {string} reason */
export function unanswered(address, reason) {
  // Not that of `location`, because a sandboxed frame has the origin `null`.
  const { origin } = globalThis;
  const isOther = origin && origin !== new URL(address).origin;
  return isOther ? `${reason}: no answer, or the gateway may not allow the origin ${origin} (HEADGATE_ALLOWED_ORIGINS)` : reason;
}

/** Parse a text as JSON. Return an empty object if it is not JSON. @param {string} text */
export function bodyOf(text) {
  try {
    return Object(JSON.parse(text));
  } catch {
    return {};
  }
}
