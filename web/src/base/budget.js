/**
 * The budget: keeps our requests below the rate at which the gateway lets one client send. No I/O.
 *
 * Without it the gateway would disconnect a page that opens with a hundred views, or publishes with each frame. The requests of the client and
 * those of the application have a share each, so that neither holds up the other, and the rest is for messages of the protocol itself. It is a
 * token bucket, kept as the time of its next token (GCRA).
 */

/** Of subscriptions and repairs, and of what the application asks for. */
const SHARE = 0.5;
export const APPLICATION_SHARE = 0.4;

/**
 * Return a function that returns how many milliseconds a request has to wait for its turn, 0 for none. The turn is taken if that is at most
 * the patience in milliseconds that the function is given, 0 by default.
 * @param {any} limits the gateway's {inboundPerS, inboundBurst}; without them all is NaN, and nothing ever waits
 * @param {number} [share] of them
 */
export function createBudget({ inboundPerS, inboundBurst }, share = SHARE) {
  const eachMs = 1000 / (inboundPerS * share);
  const savedMs = Math.max(0, inboundBurst * share - 1) * eachMs;
  let nextMs = -Infinity;
  return (patienceMs = 0) => {
    const nowMs = performance.now();
    nextMs = Math.max(nextMs, nowMs - savedMs);
    const delayMs = Math.max(0, nextMs - nowMs) || 0;
    if (delayMs <= patienceMs) nextMs += eachMs;
    return delayMs;
  };
}
