/** Reconnection delays: exponential back-off with full jitter, so that clients that were cut together come back apart. */

/**
 * Return how long to wait before an attempt: a random time between `minMs` and a ceiling that doubles up to `maxMs`.
 * @param {number} attempt 0 for the first
 * @param {number} minMs
 * @param {number} maxMs
 * @param {() => number} [random] in [0, 1)
 * @returns {number} milliseconds
 */
export function reconnectDelayMs(attempt, minMs, maxMs, random = Math.random) {
  const ceiling = Math.min(maxMs, minMs * 2 ** Math.min(attempt + 1, 30));
  return minMs + random() * Math.max(0, ceiling - minMs);
}
