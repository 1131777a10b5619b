/**
 * The inbox: what has arrived and not been dispatched yet, in order, bounded, dispatched in slices. No I/O.
 *
 * A page whose main thread was busy finds hundreds of messages at once. They are dispatched for at most SLICE_MS at a
 * time, then the page gets a turn. Notices wait in the same line as events, so that a gap is told before anything later.
 * When the line is full the inbox empties itself and hands everything to `overflowed`, once: the owner reconnects and
 * resumes from its cursor, which is behind all of it, so nothing is lost silently and memory stays bounded.
 */

/** Time that dispatching may take before the page gets a turn: well below the 50 ms of a "long task". */
const SLICE_MS = 12;

/** @template T */
export class Inbox {
  /** @type {T[]} */
  #waiting = [];
  #next = 0;
  #running = false;
  /** Whether a turn has been posted; as long as one has, everything shares its slice. */
  #posted = false;
  #sliceEnds = 0;
  #limit;
  #dispatch;
  #overflowed;
  #nowMs;
  // Not a timer: browsers delay those of hidden pages by up to a minute.
  #channel = new MessageChannel();

  /**
   * @param {number} limit messages
   * @param {(message: T) => void} dispatch must not throw
   * @param {(discarded: T[]) => void} overflowed
   * @param {() => number} [nowMs] monotonic
   */
  constructor(limit, dispatch, overflowed, nowMs = () => performance.now()) {
    this.#limit = limit;
    this.#dispatch = dispatch;
    this.#overflowed = overflowed;
    this.#nowMs = nowMs;
    this.#channel.port1.onmessage = () => this.#turn();
    // In Node an idle inbox must not keep the process alive.
    /** @type {any} */ (this.#channel.port1).unref?.();
  }

  /** Messages that wait. */
  get depth() {
    return this.#waiting.length - this.#next;
  }

  /**
   * Dispatch a message now if nothing waits and the slice has time left, else in its turn.
   * @param {T} message
   */
  put(message) {
    this.#waiting.push(message);
    if (this.depth > this.#limit) {
      const discarded = this.#waiting.slice(this.#next);
      this.clear();
      this.#overflowed(discarded);
      return;
    }
    if (!this.#posted) this.#openSlice();
    this.#run();
  }

  /** Discard what waits. */
  clear() {
    this.#waiting = [];
    this.#next = 0;
  }

  /** Discard what waits, for good. */
  close() {
    this.clear();
    this.#channel.port1.close();
  }

  #openSlice() {
    this.#posted = true;
    this.#sliceEnds = this.#nowMs() + SLICE_MS;
    this.#channel.port2.postMessage(null);
  }

  #turn() {
    this.#posted = false;
    if (this.depth === 0) return;
    this.#openSlice();
    this.#run();
  }

  #run() {
    if (this.#running) return;
    this.#running = true;
    while (this.depth > 0 && this.#nowMs() < this.#sliceEnds) this.#dispatch(this.#waiting[this.#next++]);
    this.#running = false;
    if (this.depth === 0) this.clear();
  }
}
