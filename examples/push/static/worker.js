// Shows each push as a notification. A click opens its item.
self.addEventListener("push", (event) => {
  const { title, body, item } = event.data.json();
  // An item that comes twice replaces itself.
  event.waitUntil(self.registration.showNotification(title, { body, tag: item ?? undefined, data: item ?? "" }));
});

self.addEventListener("notificationclick", (event) => {
  const url = `/#${encodeURIComponent(event.notification.data)}`;
  const open = ([page]) => (page ? page.navigate(url).then((shown) => shown.focus()) : self.clients.openWindow(url));
  event.notification.close();
  event.waitUntil(self.clients.matchAll({ type: "window" }).then(open));
});
