/** Reconnection delays: exponential back-off with full jitter, so that clients that lost their connections together do not return together. */

/** The ceiling doubles from at least this, so that a minimum of 0 makes no busy loop. */
const FIRST_CEILING_MS = 100;

/**
 * Return how long to wait before an attempt: a random time between `minMs` and a ceiling that doubles up to `maxMs`.
 * @param {number} attempt 0 for the first
 * @param {number} [minMs]
 * @param {number} [maxMs]
 * @returns {number} milliseconds
 */
export function reconnectDelayMs(attempt, minMs = 500, maxMs = 20_000) {
  const ceilingMs = Math.min(maxMs, Math.max(minMs, FIRST_CEILING_MS) * 2 ** (attempt + 1));
  return minMs + Math.random() * (ceilingMs - minMs);
}

/**
 * Return how long to wait when the gateway has named a time: at least that time, and up to half as much again.
 * @param {any} afterS seconds, from the gateway or a proxy; ignored unless it is a number above 0
 * @param {number} delayMs of the back-off, the least
 * @returns {number} milliseconds, at most an hour and a half
 */
export function delayAfterMs(afterS, delayMs) {
  return afterS > 0 ? Math.max(delayMs, Math.min(afterS, 3600) * 1000 * (1 + Math.random() / 2)) : delayMs;
}
