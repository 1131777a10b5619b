/**
 * The page's life: what the browser tells about network, visibility and the back/forward cache. Does nothing in Node.
 *
 * @param {() => void} wake the network or the page is back: a connection that waits should not wait longer
 * @param {() => void} sleep the page is about to be frozen: an open socket would keep it out of the back/forward cache
 * @returns {() => void} stops watching
 */
export function watchPage(wake, sleep) {
  if (typeof document === "undefined") return () => {};
  const watching = new AbortController();
  /** @param {EventTarget} target @param {string} name @param {(event: any) => void} listener */
  const watch = (target, name, listener) => target.addEventListener(name, listener, { signal: watching.signal });
  watch(window, "online", wake);
  watch(window, "pageshow", ({ persisted }) => persisted && wake());
  watch(window, "pagehide", ({ persisted }) => persisted && sleep());
  watch(document, "visibilitychange", () => document.visibilityState === "visible" && wake());
  return () => watching.abort();
}
