/** The service worker of outbox_page.js: the parts of the page come from a cache when there is no network. */
addEventListener("install", (event) => {
  skipWaiting();
  const parts = ["/outbox", "/modules/outbox_page.js", "/modules/headgate.js", "/modules/headgate.offline.js"];
  event.waitUntil(caches.open("page").then((cache) => cache.addAll(parts)));
});
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("fetch", (event) => {
  if (event.request.method !== "GET" || event.request.url.includes("/socket.io/")) return;
  event.respondWith(fetch(event.request).catch(() => caches.match(event.request, { ignoreSearch: true })));
});
