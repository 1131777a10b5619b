/**
 * The log position: the position of a lane, derived from the gateway's messages alone. No I/O.
 *
 * In: each message, in the order of arrival. Out: the position from which another carrier of the lane continues without a missing or repeated event. It
 * follows the rules for a client in docs/protocol.md. It is not settled from the report that the log is another one or has lost its end, until the message
 * with the new position. In between the lane cannot change its carrier.
 *
 * @import { Position, Welcome } from "../language/protocol.js"
 */
import { CURSOR, EVENT, GAP, LOG_LOST, ROLLED_BACK, TRIMMED, WELCOME } from "../language/protocol.js";

export class LogPosition {
  epoch = "";
  offset = -1;
  settled = false;

  /** Return the position to resume from, if there is one. @returns {Position | undefined} */
  toResume() {
    return this.settled ? { epoch: this.epoch, offset: this.offset } : undefined;
  }

  /** @param {string} name @param {any[]} args */
  take(name, [first, , meta]) {
    if (name === WELCOME) this.#welcome(first);
    else if (name === EVENT) this.#event(meta ?? {});
    else if (name === CURSOR) this.#settle(first.epoch, this.settled ? Math.max(this.offset, first.offset) : first.offset);
    else if (name === GAP) this.#gap(first);
  }

  /** @param {Welcome} welcome */
  #welcome({ epoch, offset, resumed, from }) {
    if (resumed === null) this.#settle(epoch, offset);
    else if (from && from.offset >= this.offset) this.#settle(from.epoch, from.offset);
    else {
      // The gap with the position follows.
      this.epoch = epoch;
      this.settled = false;
    }
  }

  /** @param {{ offset?: number, replayed?: boolean }} meta */
  #event({ offset = -1, replayed }) {
    if (this.settled) this.offset = Math.max(this.offset, offset);
    // A live event of the other log. Everything before it has come.
    else if (offset >= 0 && !replayed) this.#settle(this.epoch, offset);
  }

  /** @param {any} gap */
  #gap({ reason, from, to, epoch }) {
    if (reason === ROLLED_BACK) this.#settle(epoch, from - 1);
    else if (reason === LOG_LOST) this.settled = false;
    else if (reason === TRIMMED && to && this.settled) this.offset = Math.max(this.offset, to);
  }

  /** @param {string} epoch @param {number} offset */
  #settle(epoch, offset) {
    Object.assign(this, { epoch, offset, settled: true });
  }
}
