/**
 * The page's life: what the browser tells about network, visibility and the back/forward cache. Does nothing in Node.
 *
 * @param {() => void} wake the network or the page is back: a connection that waits should not wait longer
 * @param {() => void} sleep the page is about to be frozen: an open socket would keep it out of the back/forward cache
 * @returns {() => void} stops watching
 */
export function watchPage(wake, sleep) {
  if (typeof window === "undefined" || typeof document === "undefined") return () => {};
  const watching = new AbortController();
  const { signal } = watching;
  window.addEventListener("online", wake, { signal });
  window.addEventListener("pageshow", (event) => event.persisted && wake(), { signal });
  window.addEventListener("pagehide", (event) => event.persisted && sleep(), { signal });
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && wake(), { signal });
  return () => watching.abort();
}
