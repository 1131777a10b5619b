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
 * Return the token as it is now.
 * @param {TokenSource} source
 * @returns {Promise<string | undefined>}
 */
export async function currentToken(source) {
  return (typeof source === "function" ? await source() : source) ?? undefined;
}

/**
 * Return how long to wait before the token is to be refreshed, or null when it does not say when it expires.
 *
 * A wrong clock must not matter: the token's whole life (`exp` - `iat`) bounds the answer from above, and a token that
 * looks expired already, though the gateway has just accepted it, is judged by its whole life alone.
 * @param {string | undefined} token
 * @param {number} nowMs wall clock
 * @returns {number | null} milliseconds
 */
export function refreshDelayMs(token, nowMs) {
  const { exp, iat } = claims(token);
  if (typeof exp !== "number") return null;
  const left = exp * 1000 - nowMs;
  const life = typeof iat === "number" && exp > iat ? (exp - iat) * 1000 : left;
  const lasts = left > 0 ? Math.min(left, life) : life;
  return Math.min(MAX_TIMER_MS, Math.max(1000, lasts * REFRESH_AT));
}

/** @param {string | undefined} token @returns {{ exp?: unknown, iat?: unknown }} */
function claims(token) {
  try {
    const body = String(token).split(".")[1].replaceAll("-", "+").replaceAll("_", "/");
    return JSON.parse(atob(body)) ?? {};
  } catch {
    return {};
  }
}
