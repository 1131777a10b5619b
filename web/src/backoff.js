/** Reconnection delays: exponential back-off with full jitter, so that clients that were cut together come back apart. */

/**
 * Return how long to wait before an attempt: a random time between `minMs` and a ceiling that doubles up to `maxMs`.
 * @param {number} attempt 0 for the first
 * @param {number} minMs
 * @param {number} maxMs
 * @returns {number} milliseconds
 */
export function reconnectDelayMs(attempt, minMs, maxMs) {
  return minMs + Math.random() * (Math.min(maxMs, minMs * 2 ** (attempt + 1)) - minMs);
}
