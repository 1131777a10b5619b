/**
 * The budget: keeps our own requests below what the gateway lets one client send. No I/O.
 *
 * A page that opens with a hundred views would otherwise be cut as a flood. A part of the gateway's limit is left for
 * publishing and for messages of the protocol itself. It is a token bucket, kept as the time of its next token (GCRA).
 */

const SHARE = 0.5;

/**
 * Return what takes one request out of the budget now: 0, or milliseconds until there is one.
 * @param {any} limits the gateway's {inbound_per_s, inbound_burst}; without them all is NaN, and nothing ever waits
 */
export function createBudget({ inbound_per_s, inbound_burst }) {
  const eachMs = 1000 / (inbound_per_s * SHARE);
  const savedMs = Math.max(0, inbound_burst * SHARE - 1) * eachMs;
  let nextMs = -Infinity;
  return () => {
    const nowMs = performance.now();
    nextMs = Math.max(nextMs, nowMs - savedMs);
    if (nextMs > nowMs) return nextMs - nowMs;
    nextMs += eachMs;
    return 0;
  };
}
