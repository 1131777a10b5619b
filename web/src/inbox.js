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

/**
 * @template T
 * @param {number} limit messages
 * @param {(message: T) => void} dispatch must not throw
 * @param {(discarded: T[]) => void} overflowed
 */
export function createInbox(limit, dispatch, overflowed) {
  /** @type {T[]} */
  let waiting = [];
  let running = false;
  /** A turn has been posted; as long as one has, everything shares its slice. */
  let posted = false;
  let sliceEnds = 0;
  // Not a timer: browsers delay those of hidden pages by up to a minute.
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => {
    posted = false;
    if (waiting.length) run();
  };
  // In Node an idle inbox must not keep the process alive.
  /** @type {any} */ (port1).unref?.();

  function run() {
    if (!posted) {
      posted = true;
      sliceEnds = performance.now() + SLICE_MS;
      port2.postMessage(0);
    }
    if (running) return;
    running = true;
    while (waiting.length && performance.now() < sliceEnds) dispatch(/** @type {T} */ (waiting.shift()));
    running = false;
  }

  return {
    /** Return how many messages wait. */
    _depth: () => waiting.length,

    /** Dispatch a message now if nothing waits and the slice has time left, else in its turn. @param {T} message */
    _put(message) {
      waiting.push(message);
      if (waiting.length > limit) overflowed(waiting.splice(0));
      else run();
    },

    /** Discard what waits, for good. */
    _close() {
      waiting = [];
      port1.close();
    },
  };
}
