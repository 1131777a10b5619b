/**
 * The page's life: the browser's events about network, visibility and the back/forward cache, and sleep, which causes no event. In
 * Node and in workers there is only sleep.
 *
 * A page that slept finds that the wall clock has jumped between two turns of a timer. So does a page after the user has set the clock, or
 * that stood still: to be asked for a sign of life costs a connection nothing.
 */

/** Time between two readings of the clock, and how much later a turn may be: far more than a busy page or a busy machine. */
const LOOK_MS = 5000;
const LATE_MS = 10_000;
/** All pages of an office hear of their network at once, and all machines of a host wake at once. */
const SPREAD_MS = 1000;

/**
 * @param {(spreadMs?: number) => void} wake the network or the page is back: a connection that waits should not wait longer, and one that
 *   seems to live may be dead
 * @param {() => void} sleep the page is about to be frozen or to end: an open socket would keep it out of the back/forward cache
 * @param {() => void} lose the network is gone: a socket would notice it a minute later
 * @returns {() => void} stops watching
 */
export function watchPage(wake, sleep, lose) {
  // An AbortController has a `signal`, as the options of a listener have.
  const watching = new AbortController();
  /** @param {string} name @param {() => void} listener */
  const watch = (name, listener) => globalThis.addEventListener?.(name, listener, watching);
  // Timers of hidden pages are late, and the page is notified when it becomes visible.
  /** @param {number} [spreadMs] */
  const wakeIfSeen = (spreadMs) => globalThis.document?.hidden || wake(spreadMs);
  watch("online", () => wake(SPREAD_MS));
  watch("offline", lose);
  // A hidden tab may go back too, and must undo its `pagehide`.
  watch("pageshow", () => wake());
  watch("pagehide", sleep);
  // Behind `pagehide` comes one more of these, which must not undo it.
  watch("visibilitychange", () => wakeIfSeen());

  /** @type {any} */
  let timer;
  /** @param {number} lookedMs */
  function look(lookedMs) {
    const nowMs = Date.now();
    if (nowMs - lookedMs > LOOK_MS + LATE_MS) wakeIfSeen(SPREAD_MS);
    timer = setTimeout(look, LOOK_MS, nowMs);
    // It keeps no process of Node alive.
    timer.unref?.();
  }
  look(Infinity);

  return () => {
    watching.abort();
    clearTimeout(timer);
  };
}
