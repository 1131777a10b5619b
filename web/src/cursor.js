/**
 * The cursor: how far this client has got in the log, what is a duplicate, and which of the past it has asked for. No I/O.
 *
 * In: positions from `welcome`, `cursor` and every event that is dispatched. Out: `resume`, what the next CONNECT carries,
 * and `admit`, who may see an event. Rule: an event is new if and only if its offset is above the cursor. One at or below
 * it is a duplicate, unless it is marked `replayed` and a pattern has asked for the past (`since`): then it goes to that
 * pattern's handlers alone, once.
 *
 * The gateway sends a past in order and then everything later, so the first new event after some of it ends it. Until any
 * of it comes, events that were under way already may reach the pattern's handlers; they are noted, not to come twice.
 *
 * @import { EventMeta, Position, Since } from "./protocol.js"
 * @typedef {{ since: Since, last: number, noted: Set<number> }} Past `since`: where it goes on after a reconnection
 */

/** Events noted while a past has not begun; if that many come first, it will not begin any more. */
const MAX_NOTED = 1000;

export class Cursor {
  /** @type {string | null} */
  epoch = null;
  /** @type {number | null} what to resume from */
  offset = null;
  /** Whether everything up to `offset` has been seen; if not, offset is only where to resume and rules nothing out. */
  #exact = true;
  /** @type {Map<string, Past>} by pattern */
  #pasts = new Map();

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
    if (this.#exact && this.offset !== null && offset < this.offset) return;
    this.offset = offset;
    this.#exact = true;
  }

  /**
   * The log was lost: another begins, of which anything may come. Until something does, resume from `offset`.
   * @param {string | null} [epoch]
   * @param {number | null} [offset]
   */
  restart(epoch = this.epoch, offset = this.offset) {
    this.epoch = epoch;
    this.offset = offset;
    this.#exact = false;
    this.#pasts.clear();
  }

  /** Expect a part of the past for a pattern. @param {string} pattern @param {Since} since */
  expect(pattern, since) {
    this.#pasts.set(pattern, { since, last: -1, noted: new Set() });
  }

  /** Expect it no more. @param {string} pattern */
  forget(pattern) {
    this.#pasts.delete(pattern);
  }

  /** Return what is still to come of the past: pattern and where it goes on. @returns {[string, Since][]} */
  expected() {
    return [...this.#pasts].map(([pattern, { since }]) => [pattern, since]);
  }

  /**
   * Count an event as seen, and return who may see it (null: nobody, it is a duplicate). What is returned is to be asked
   * once for each pattern that matches.
   * @param {EventMeta} meta
   * @returns {((pattern: string) => boolean) | null}
   */
  admit({ offset, replayed }) {
    if (typeof offset !== "number") return () => true;
    if (!this.#exact || this.offset === null || offset > this.offset) {
      this.offset = offset;
      this.#exact = true;
      for (const [pattern, { last }] of this.#pasts) if (last >= 0) this.forget(pattern);
      return (pattern) => this.#note(pattern, offset);
    }
    return replayed && this.#pasts.size ? (pattern) => this.#admitPast(pattern, offset) : null;
  }

  /** @param {string} pattern @param {number} offset */
  #note(pattern, offset) {
    const past = this.#pasts.get(pattern);
    past?.noted.add(offset);
    if (past && past.noted.size > MAX_NOTED) this.forget(pattern);
    return true;
  }

  /** @param {string} pattern @param {number} offset */
  #admitPast(pattern, offset) {
    const past = this.#pasts.get(pattern);
    if (!past || offset <= past.last || past.noted.has(offset)) return false;
    past.last = offset;
    past.since = { offset };
    return true;
  }
}
