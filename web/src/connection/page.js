/**
 * The page's lifecycle: the browser's events for network, visibility and the back/forward cache, and sleep, which causes no event. In Node and in workers
 * only sleep is detected.
 *
 * After sleep, the wall clock has jumped between two turns of a timer. The same happens when the user sets the clock or the page was suspended. A false
 * alarm only costs a probe of the connection.
 */

/** Time between two readings of the clock, and how much later one may be, far above the delays of a busy page or machine. */
const READ_MS = 5000;
const LATE_MS = 10_000;
/** All pages of an office get their network back at once, and all virtual machines of a host wake at once. */
const SPREAD_MS = 1000;

/**
 * @param {(spreadMs?: number) => void} wake the network or the page is back, so a waiting client should connect, and an open connection may be dead
 * @param {() => void} sleep the page is about to be frozen or to end; an open socket would keep it out of the back/forward cache
 * @param {() => void} lose the network is gone, which a socket would notice a minute later
 * @returns {() => void} stops watching
 */
export function watchPage(wake, sleep, lose) {
  // It serves as the options of a listener, because it has a `signal`.
  const watching = new AbortController();
  /** @param {string} name @param {() => void} listener */
  const watch = (name, listener) => globalThis.addEventListener?.(name, listener, watching);
  // Timers of hidden pages are late. `visibilitychange` follows when the page becomes visible.
  /** @param {number} [spreadMs] */
  const wakeIfSeen = (spreadMs) => globalThis.document?.hidden || wake(spreadMs);
  watch("online", () => wake(SPREAD_MS));
  watch("offline", lose);
  // A hidden tab may return from the cache too, and must undo its `pagehide`.
  watch("pageshow", () => wake());
  watch("pagehide", sleep);
  // After `pagehide` the browser fires this once more, which must not undo it.
  watch("visibilitychange", () => wakeIfSeen());

  /** @type {any} */
  let timer;
  /** @param {number} previousMs */
  function readClock(previousMs) {
    const nowMs = Date.now();
    if (nowMs - previousMs > READ_MS + LATE_MS) wakeIfSeen(SPREAD_MS);
    timer = setTimeout(readClock, READ_MS, nowMs);
    // In Node it must not keep the process alive.
    timer.unref?.();
  }
  readClock(Infinity);

  return () => {
    watching.abort();
    clearTimeout(timer);
  };
}
