/**
 * The cursor: how far this client has got in the log, what is a duplicate, and which of the past it has asked for. No I/O.
 *
 * In: positions from `welcome`, `cursor` and every event that is dispatched. Out: `resume`, what the next CONNECT carries,
 * and `admit`, who may see an event. Rule: an event is new if and only if its offset is above the cursor. One at or below
 * it is a duplicate, unless it is marked `replayed` and lies in a range that the application asked for (a `since`, or a
 * replay after a gap), in which case it goes to the handlers of that range's pattern alone, once.
 *
 * @import { EventMeta, Position } from "./protocol.js"
 * @typedef {{ pattern: string, next: number, to: number }} Range
 */

/** Ranges that may be open at once; the oldest is given up beyond that. */
const MAX_RANGES = 64;

export class Cursor {
  /** @type {string | null} */
  epoch = null;
  /** @type {number | null} what to resume from */
  offset = null;
  /** Whether everything up to `offset` has been seen; if not, offset is only where to resume and rules nothing out. */
  #exact = true;
  /** @type {Range[]} */
  #ranges = [];

  /** What a CONNECT asks to resume from. @returns {Position | undefined} */
  get resume() {
    return this.epoch !== null && this.offset !== null ? { epoch: this.epoch, offset: this.offset } : undefined;
  }

  /**
   * Move forward to a position; a new epoch starts anew.
   * @param {Position} position
   */
  advance({ epoch, offset }) {
    if (epoch !== this.epoch) this.restart(epoch);
    if (typeof offset !== "number" || (this.offset !== null && offset < this.offset)) return;
    this.offset = offset;
    this.#exact = true;
  }

  /**
   * The log was lost: another begins, of which anything may come. Until something does, resume from `offset`.
   * @param {string | null} [epoch]
   * @param {number | null} [offset]
   */
  restart(epoch = null, offset = null) {
    this.epoch = epoch;
    this.offset = offset;
    this.#exact = false;
    this.#ranges = [];
  }

  /**
   * Ask for a part of the past: replayed events in it are not duplicates for this pattern.
   * @param {string} pattern
   * @param {number} [from] first offset
   * @param {number} [to] last offset
   */
  open(pattern, from = 0, to = Number.MAX_SAFE_INTEGER) {
    this.#ranges.push({ pattern, next: from, to });
    if (this.#ranges.length > MAX_RANGES) this.#ranges.shift();
  }

  /** @param {string} pattern */
  closeRanges(pattern) {
    this.#ranges = this.#ranges.filter((range) => range.pattern !== pattern);
  }

  /**
   * Return who may see an event (null: nobody, it is a duplicate), and count it as seen.
   * @param {EventMeta} meta
   * @returns {((pattern: string) => boolean) | null}
   */
  admit({ offset, replayed }) {
    if (typeof offset !== "number") return () => true;
    const open = this.#ranges.filter((range) => offset >= range.next && offset <= range.to);
    for (const range of open) range.next = offset + 1;
    if (!this.#exact || this.offset === null || offset > this.offset) {
      this.offset = offset;
      this.#exact = true;
      return () => true;
    }
    if (!replayed || !open.length) return null;
    return (pattern) => open.some((range) => range.pattern === pattern);
  }
}
