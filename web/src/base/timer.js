/**
 * Timers with long delays. `setTimeout` treats a delay above 2^31 - 1 ms as 0 (HTML, "timer initialisation steps": a signed 32-bit integer), so a time
 * from an option or a gateway could become a busy loop.
 */

/** The longest delay of a timer, 24.8 days. */
export const MAX_DELAY_MS = 2 ** 31 - 1;

/**
 * Call a function once, later. @param {(...args: any[]) => void} act
 * @param {number} delayMs capped at MAX_DELAY_MS
 * @param {...any} args of the call
 */
export const startTimer = (act, delayMs, ...args) => setTimeout(act, Math.min(delayMs, MAX_DELAY_MS), ...args);
