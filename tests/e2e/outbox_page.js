/** The page of test_offline.py: a gate and its outbox; everything that a test asks about is in `window.page`. */
import { connect } from "/modules/headgate.js";
import { createOutbox } from "/modules/headgate.offline.js";

const page = { receipts: [], fates: [], restored: 0, replaced: 0 };
page.gate = connect(location.origin, {
  token: async () => (await fetch("/token?life=600", { method: "POST" })).text(),
  reconnectDelayMinMs: 50,
  reconnectDelayMaxMs: 200,
});
page.gate.on("connection:refused", () => {});
page.gate.on("publish:receipt", ({ data, restored, replaces }) => {
  page.receipts.push(data);
  if (restored) page.restored++;
  if (replaces) page.replaced++;
});
/** @param {number} maxEvents */
page.open = (maxEvents = 1000) => createOutbox(page.gate, { storage: "indexeddb", user: "ann", maxEvents });
page.outbox = page.open();
/** Publish numbers, and return how many are kept. */
page.publish = (first, last, outbox = page.outbox) => {
  for (let n = first; n <= last; n++) {
    outbox.publish(`numbers.n${n}`, n).then(
      () => page.fates.push("published"),
      ({ code }) => page.fates.push(code),
    );
  }
  return outbox.pending().then(({ length }) => length);
};
page.ready = navigator.serviceWorker.register("/modules/outbox_worker.js", { scope: "/" }).then(() => navigator.serviceWorker.ready);
await page.ready;
window.page = page;
