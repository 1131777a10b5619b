/** The demo's orders: topics and data that anybody may have published, and the present state whatever comes first. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { changeOf, merged, money } from "../../demo/src/order.js";
import { Orders } from "../../demo/src/orders.js";
import { ShopError } from "../../demo/src/shop.js";
import { drawer } from "./drawer.js";

const HISTORIES = Number(process.env.HEADGATE_HISTORIES ?? 300);
const ORDER = { id: "42", status: "packed", customer: "C", total_cents: 100, note: "", by: "ben", version: 7 };

/** A shop that refuses, or answers, as the test says; and what a board of it was asked to show. @param {any} shop */
function boardOf(shop = {}) {
  /** @type {any} */
  let load;
  /** @type {Map<string, any>} */
  const shown = new Map();
  const follow = (/** @type {string} */ _pattern, /** @type {any} */ _fetch, /** @type {any} */ options) => (load = options);
  const orders = new Orders(shop, follow, { changed: (order) => shown.set(order.id, order), removed: (id) => shown.delete(id), loaded: () => {} });
  const event = (/** @type {string} */ verb, /** @type {any} */ data) => load.apply(data, { topic: `orders.${data?.id ?? "42"}.${verb}` });
  return { orders, shown, event, reset: (/** @type {any[]} */ all) => load.reset(all) };
}

test("an event of the shop is an order as it is now", () => {
  const { id, ...fields } = ORDER;
  assert.deepEqual(changeOf("orders.42.updated", ORDER), { op: "upsert", id, fields });
});

test("a verb that names a status is that status, unless the data says another", () => {
  assert.equal(changeOf("orders.1.shipped", null).fields.status, "shipped");
  assert.equal(changeOf("orders.1.shipped", { status: "failed" }).fields.status, "failed");
  assert.equal("status" in changeOf("orders.1.updated", {}).fields, false);
});

test("deleted removes; a topic of another depth is nothing", () => {
  assert.equal(changeOf("orders.1.deleted", {}).op, "remove");
  for (const topic of ["orders", "orders.1", "orders.1.parcel.shipped"]) assert.equal(changeOf(topic, {}).op, "ignore");
});

test("only known fields of the right type are taken, and text is bounded", () => {
  const data = JSON.parse('{"customer": 7, "total_cents": "3", "status": "lost", "__proto__": {"note": "x"}, "constructor": "y", "version": 1e999}');
  assert.deepEqual(changeOf("orders.1.updated", data).fields, { by: "outside" });
  assert.equal(changeOf("orders.1.updated", { note: "n".repeat(9999) }).fields.note?.length, 140);
});

test("fields of an event from outside are merged, and an unknown order has the rest by default", () => {
  const change = changeOf("orders.42.shipped", { note: "UPS" });
  assert.deepEqual(merged(ORDER, change), { ...ORDER, status: "shipped", note: "UPS", by: "outside" });
  assert.equal(merged(undefined, change).customer, "Unknown customer");
});

test("cents are written as money", () => {
  assert.equal(money(129_900), "€1,299.00");
});

test("answers and events in any order, some twice, lead to the newest version", () => {
  for (let seed = 1; seed <= HISTORIES; seed++) {
    const draw = drawer(seed);
    const { orders, shown, event } = boardOf();
    const all = Array.from({ length: 1 + draw(12) }, () => 1 + draw(6));
    const deletedAt = draw(7);
    for (const version of all) {
      const data = { ...ORDER, version, note: String(version) };
      if (version === deletedAt) event("deleted", data);
      else if (draw(2)) event("updated", data);
      else orders.accept(data);
    }
    // A deletion is final for what is older, and what is newer brings the order back.
    const newest = Math.max(...all);
    assert.equal(shown.get("42")?.note, newest === deletedAt ? undefined : String(newest), `seed ${seed}`);
  }
});

test("a fetch replaces everything, also newer versions: the log may have been rolled back", () => {
  const { orders, shown, event, reset } = boardOf();
  event("updated", { ...ORDER, version: 9 });
  event("created", { ...ORDER, id: "43" });
  reset([{ ...ORDER, version: 8 }]);
  assert.deepEqual([...shown.keys()], ["42"]);
  assert.equal(orders.get("42")?.version, 8);
});

test("a flood of unknown numbers does not fill the page", () => {
  const { shown, event } = boardOf();
  for (let id = 0; id < 1000; id++) event("created", { ...ORDER, id: String(id) });
  assert.equal(shown.size, 300);
});

test("an edit is tried again on what someone else made of another field, and not on the same field", async () => {
  let current = { ...ORDER, version: 8, status: "shipped" };
  const shop = {
    send: async (/** @type {string} */ _method, /** @type {string} */ _path, /** @type {any} */ { version, ...fields }) => {
      if (version !== current.version) throw new ShopError(409, { code: "conflict", detail: "changed", current });
      current = { ...current, ...fields, version: version + 1 };
      return current;
    },
  };
  const { orders, shown } = boardOf(shop);
  orders.accept(ORDER);
  assert.equal(await orders.change("42", "note", "mine", ""), undefined);
  assert.deepEqual([shown.get("42").note, shown.get("42").status], ["mine", "shipped"]);
  current = { ...current, version: 20, note: "theirs" };
  assert.equal((await orders.change("42", "note", "again", "mine"))?.note, "theirs");
  assert.equal(current.note, "theirs");
});
