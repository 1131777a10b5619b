/**
 * Reasons: says in words why an attempt to connect failed. Pure functions over socket.io-client's error objects.
 *
 * "xhr poll error" does not help. Where the answer can be read (long-polling; a WebSocket's refusal is hidden from pages), the
 * reason is in the server's words: the message of a JSON answer, else the HTTP status. Nothing else of an answer is repeated:
 * it may be a proxy's whole page.
 */

/** Characters of a server's own words that are repeated. */
const MAX_WORDS = 200;

/**
 * Return why an attempt failed, and after how many seconds the server wants to be asked again, if it said so.
 * @param {any} error socket.io-client's: {message, description?, context?: XMLHttpRequest}
 * @returns {{ reason: string, retryAfterS?: number }}
 */
export function reasonOf(error) {
  const { message = String(error), description, context } = Object(error);
  const status = context?.status;
  // A WebSocket in Node tells more than a page may know.
  if (!status) return { reason: wordsOf(description?.message) ?? message };
  const { message: said, retry_after_s } = bodyOf(context);
  const words = wordsOf(said);
  return {
    reason: words ? `${words} (HTTP ${status})` : `HTTP ${status}`,
    retryAfterS: retry_after_s ?? (Number(headerOf(context)) || undefined),
  };
}

/** @param {any} context */
function bodyOf(context) {
  try {
    // Reading it throws when it is not text.
    return Object(JSON.parse(context.responseText));
  } catch {
    return {};
  }
}

/** Null where the gateway is another origin and the header is not exposed. @param {any} context @returns {string | null} */
function headerOf(context) {
  return context.getResponseHeader?.("Retry-After") ?? null;
}

/** @param {unknown} said @returns {string | undefined} */
function wordsOf(said) {
  return typeof said === "string" && said ? said.slice(0, MAX_WORDS) : undefined;
}
