// Shows each push as a notification. A click opens the item and marks it as read.
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("push", (event) => {
  const { title, body, item } = event.data.json();
  // An item that comes twice replaces itself.
  event.waitUntil(self.registration.showNotification(title, { body, tag: item ?? undefined, data: { item } }));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open(event.notification.data.item));
});

async function open(item) {
  const url = new URL(`/#${encodeURIComponent(item ?? "")}`, location.origin).href;
  if (item !== null) await post("/read", { item }).catch(() => {});
  const [page] = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  if (!page) return self.clients.openWindow(url);
  await page.focus();
  return page.navigate(url);
}

// The push service gave this browser another address.
self.addEventListener("pushsubscriptionchange", (event) => event.waitUntil(renew(event.oldSubscription)));

async function renew(old) {
  if (old) await self.registration.pushManager.subscribe(old.options).then((now) => post("/devices", now));
}

const post = (path, data) =>
  fetch(path, { method: "POST", body: JSON.stringify(data), headers: { "Content-Type": "application/json" } });
