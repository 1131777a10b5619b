/**
 * The budget: keeps our own requests below the rate at which the gateway lets one client send. No I/O.
 *
 * Without it the gateway would disconnect a page that opens with a hundred views. A part of the gateway's limit is left for
 * publishing and for messages of the protocol itself. It is a token bucket, kept as the time of its next token (GCRA).
 */

const SHARE = 0.5;

/**
 * Return a function that takes one request out of the budget and returns 0, or else how many milliseconds to wait for one.
 * @param {any} limits the gateway's {inboundPerS, inboundBurst}; without them all is NaN, and nothing ever waits
 */
export function createBudget({ inboundPerS, inboundBurst }) {
  const eachMs = 1000 / (inboundPerS * SHARE);
  const savedMs = Math.max(0, inboundBurst * SHARE - 1) * eachMs;
  let nextMs = -Infinity;
  return () => {
    const nowMs = performance.now();
    nextMs = Math.max(nextMs, nowMs - savedMs);
    if (nextMs > nowMs) return nextMs - nowMs;
    nextMs += eachMs;
    return 0;
  };
}
