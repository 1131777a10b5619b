/**
 * Timers that wait as long as they are asked to. `setTimeout` takes a delay above 2^31 - 1 ms for none (HTML, "timer initialisation steps": a
 * signed 32-bit integer), so a time that an option or a gateway names would become a busy loop.
 */

/** The longest that a timer can wait: 24.8 days. */
export const MAX_DELAY_MS = 2 ** 31 - 1;

/**
 * Call a function later, once. @param {(...args: any[]) => void} act
 * @param {number} delayMs at most MAX_DELAY_MS counts
 * @param {...any} args of the call
 */
export const startTimer = (act, delayMs, ...args) => setTimeout(act, Math.min(delayMs, MAX_DELAY_MS), ...args);
