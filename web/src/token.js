/**
 * Tokens: a value or a function that brings one, and when to bring the next. Nothing is verified here: the gateway does.
 *
 * @typedef {string | null | undefined | (() => string | null | undefined | Promise<string | null | undefined>)} TokenSource
 */

/** Share of a token's life after which it is refreshed; the rest is for retries. */
const REFRESH_AT = 0.8;
/** The longest that a timer can wait (2^31 - 1 ms). */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * Return how long to wait before the token is to be refreshed, or null when it does not say when it expires.
 *
 * A wrong clock must not matter: the token's whole life (`exp` - `iat`) bounds the answer from above, and a token that
 * looks expired already, though the gateway has just accepted it, is judged by its whole life alone.
 * @param {string | null | undefined} token
 * @param {number} nowMs wall clock
 * @returns {number | null} milliseconds; NaN for an `exp` that is no number
 */
export function refreshDelayMs(token, nowMs) {
  try {
    const body = String(token).split(".")[1].replaceAll("-", "+").replaceAll("_", "/");
    const { exp, iat } = JSON.parse(atob(body));
    if (!exp) return null;
    const left = exp * 1000 - nowMs;
    const life = exp > iat ? (exp - iat) * 1000 : left;
    return Math.min(MAX_TIMER_MS, Math.max(1000, (left > 0 ? Math.min(left, life) : life) * REFRESH_AT));
  } catch {
    return null;
  }
}
