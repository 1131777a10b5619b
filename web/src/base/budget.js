/**
 * The budget keeps our requests below the rate that the gateway allows one client. No I/O.
 *
 * Without it the gateway would disconnect a page that opens a hundred views, or publishes with each frame. The requests of the client and those of the
 * application have separate shares, so that neither delays the other. The rest is for messages of the protocol itself. It is a token bucket, stored as
 * the time of its next token (GCRA).
 */

/** The share of subscriptions and repairs, and that of the application's requests. */
const SHARE = 0.5;
export const APPLICATION_SHARE = 0.4;

/**
 * Return a function that returns how many milliseconds a request must wait for its turn; 0: none. It takes the turn if this is at most its argument, the
 * caller's patience in milliseconds (default 0).
 * @param {any} limits the gateway's {inboundPerS, inboundBurst}; without them the times are NaN, and nothing waits
 * @param {number} [share] of the limits
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
