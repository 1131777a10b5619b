/**
 * The page's life: the browser's events about network, visibility and the back/forward cache. Does nothing in Node.
 *
 * @param {() => void} wake the network or the page is back: a connection that waits should not wait longer
 * @param {() => void} sleep the page is about to be frozen or to end: an open socket would keep it out of the back/forward cache
 * @param {() => void} lose the network is gone: a socket would notice it a minute later
 * @returns {() => void} stops watching
 */
export function watchPage(wake, sleep, lose) {
  // An AbortController has a `signal`, as the options of a listener have.
  const watching = new AbortController();
  /** @param {string} name @param {() => void} listener */
  const watch = (name, listener) => globalThis.addEventListener?.(name, listener, watching);
  const wakeIfSeen = () => document.hidden || wake();
  watch("online", wake);
  watch("offline", lose);
  watch("pageshow", wakeIfSeen);
  watch("pagehide", sleep);
  // Behind `pagehide` comes one more of these, which must not undo it.
  watch("visibilitychange", wakeIfSeen);
  return () => watching.abort();
}
