/**
 * Reasons: says in words why an attempt to connect failed, from the answer of whatever server answered. Pure functions.
 *
 * "websocket error" does not help. Where the answer to an HTTP request can be read (a WebSocket's refusal is hidden from pages), the
 * reason is in the server's words: the message of a JSON answer, else the HTTP status. Nothing else of an answer is repeated:
 * it may be a proxy's whole page.
 */

/** Characters of a server's own words that are repeated. */
const MAX_WORDS = 200;

/**
 * Return why an attempt failed, and after how many seconds the server wants to be asked again, if it said so.
 * @param {number} status of HTTP
 * @param {string} text the answer's body
 * @param {string | null} [retryAfter] the header; null where the gateway is another origin and the header is not exposed
 * @returns {{ reason: string, retryAfterS?: number }}
 */
export function reasonOf(status, text, retryAfter) {
  const { message, retry_after_s } = bodyOf(text);
  const words = typeof message === "string" && message.slice(0, MAX_WORDS);
  return { reason: words ? `${words} (HTTP ${status})` : `HTTP ${status}`, retryAfterS: retry_after_s ?? (Number(retryAfter) || undefined) };
}

/** @param {string} text */
function bodyOf(text) {
  try {
    return Object(JSON.parse(text));
  } catch {
    return {};
  }
}
