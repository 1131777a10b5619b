/**
 * The budget: a token bucket that keeps our own requests below what the gateway lets one client send. No I/O.
 *
 * A page that opens with a hundred views would otherwise be cut as a flood. A part of the gateway's limit is left for
 * publishing and for messages of the protocol itself.
 */

const SHARE = 0.5;

export class Budget {
  #tokens;
  #filledMs;

  /**
   * @param {number} perSecond the gateway's `inbound_per_s`
   * @param {number} burst the gateway's `inbound_burst`
   * @param {number} nowMs monotonic
   */
  constructor(perSecond, burst, nowMs) {
    this.perSecond = perSecond * SHARE;
    this.burst = Math.max(1, burst * SHARE);
    this.#tokens = this.burst;
    this.#filledMs = nowMs;
  }

  /**
   * Take one request out of the budget.
   * @param {number} nowMs
   * @returns {number} 0, or milliseconds until there is one to take
   */
  take(nowMs) {
    this.#tokens = Math.min(this.burst, this.#tokens + ((nowMs - this.#filledMs) / 1000) * this.perSecond);
    this.#filledMs = nowMs;
    if (this.#tokens < 1) return Math.ceil(((1 - this.#tokens) / this.perSecond) * 1000);
    this.#tokens -= 1;
    return 0;
  }
}
