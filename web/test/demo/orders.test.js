/** The demo's reading of events: orders from topics and data that anybody may have published, and their words. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import Backbone from "backbone";
import { Gate } from "#headgate";
import { changeOf, isOfTheShop, money, neighbour, nextStep, STATUSES } from "../../demo/src/order.js";
import { Orders } from "../../demo/src/orders.js";
import { wordsFor } from "../../demo/src/words.js";

const reader = { user: "ana", names: { ana: "Ana", ben: "Ben" } };

test("an event of the shop is an order as it is now", () => {
  const data = { id: "42", status: "packed", customer: "C", carrier: "UPS", note: "", by: "ben", items: 2, total_cents: 100, scans: 0, version: 7 };
  const { id, ...rest } = data;
  assert.deepEqual(changeOf("orders.42.updated", data), { op: "upsert", id, attributes: rest });
});

test("a verb that names a status is that status, unless the data says another", () => {
  assert.equal(changeOf("orders.1.shipped", null).attributes.status, "shipped");
  assert.equal(changeOf("orders.1.shipped", { status: "failed" }).attributes.status, "failed");
  assert.equal("status" in changeOf("orders.1.updated", {}).attributes, false);
});

test("deleted removes; a topic of another depth is nothing", () => {
  assert.equal(changeOf("orders.1.deleted", {}).op, "remove");
  for (const topic of ["orders", "orders.1", "orders.1.parcel.shipped"]) assert.equal(changeOf(topic, {}).op, "ignore");
});

test("only known fields of the right type are taken, and text is bounded", () => {
  const data = JSON.parse('{"customer": 7, "items": "3", "status": "lost", "__proto__": {"note": "x"}, "constructor": "y", "scans": 1e999}');
  assert.deepEqual(changeOf("orders.1.updated", data).attributes, { by: "outside" });
  assert.equal(changeOf("orders.1.updated", { note: "n".repeat(9999) }).attributes.note.length, 140);
  assert.deepEqual(changeOf("orders.1.updated", Object.create({ note: "inherited" })).attributes, { by: "outside" });
});

test("columns have neighbours but for the outer ones", () => {
  assert.equal(neighbour({ status: "new" }, -1), null);
  assert.equal(neighbour({ status: "new" }, 1), "packed");
  assert.equal(neighbour({ status: "failed" }, 1), null);
  assert.equal(neighbour({ status: "lost" }, -1), null);
});

test("the next step goes on towards shipped; to fail is no step, for that has an action of its own", () => {
  assert.deepEqual(STATUSES.map((status) => nextStep({ status })), ["packed", "shipped", null, null]);
});

test("an order that only an event from outside tells of is not the shop's", () => {
  assert.equal(isOfTheShop({ id: "9001" }), false);
  assert.equal(isOfTheShop({ id: "42", version: 4 }), true);
});

test("a deletion says of which version, so that one that has been undone is told from one that has not", () => {
  assert.deepEqual(changeOf("orders.1.deleted", { id: "1", version: 7, note: "x" }).attributes, { version: 7 });
  assert.deepEqual(changeOf("orders.1.deleted", null).attributes, {});
  assert.equal(changeOf("orders.1.restored", { version: 8 }).op, "upsert");
});

test("cents are written as money", () => {
  assert.equal(money(129_900), "€1,299.00");
});

test("an order's event says what happened, to whom and by whom", () => {
  assert.deepEqual(wordsFor("orders.42.shipped", { carrier: "UPS", customer: "C", note: "", by: "ben" }, reader), {
    title: "Order 42 shipped",
    detail: "UPS · C · by Ben",
    status: "shipped",
  });
  assert.equal(wordsFor("orders.42.failed", { by: "ana" }, reader).detail, "by you");
  assert.equal(wordsFor("orders.42.failed", {}, reader).detail, "from outside");
});

test("names of Object's own are names like any other", () => {
  assert.equal(wordsFor("orders.1.constructor", { by: "toString" }, reader).title, "Order 1 constructor");
  assert.equal(wordsFor("orders.1.failed", { by: "toString" }, reader).detail, "by toString");
});

test("anything else is shown as its topic and its text, bounded", () => {
  assert.deepEqual(wordsFor("users.ana.hello", { text: "hi" }, reader), { title: "users.ana.hello", detail: "hi", status: "" });
  assert.equal(wordsFor("users.ana.hello", "plain", reader).detail, "plain");
  assert.equal(wordsFor("users.ana.hello", [1, { a: 2 }], reader).detail, '[1,{"a":2}]');
  assert.equal(wordsFor("users.ana.hello", "x".repeat(70_000), reader).detail.length, 161);
});

/** A gate without a gateway, which acknowledges at once. @returns {any} */
function gateOf() {
  const gate = {
    ...Backbone.Events,
    _loads: new Set(),
    _load: Gate.prototype._load,
    _position: () => ({ epoch: "e1", offset: 0 }),
    subscribed: () => Promise.resolve(),
    subscribe(/** @type {string} */ pattern, /** @type {any} */ _options, /** @type {any} */ handler) {
      gate.on(pattern, handler);
      return { close: () => gate.off(pattern, handler) };
    },
  };
  return gate;
}

test("an order that was made while the board opened stays, in whatever order its two questions are answered", async () => {
  const book = [{ id: "1" }];
  /** @type {(() => void)[]} */
  const waiting = [];
  const ask = () => {
    const now = [...book];
    return new Promise((resolve) => waiting.push(() => resolve(now)));
  };
  const gate = gateOf();
  const orders = new Orders(/** @type {any} */ ({ orders: ask }), gate);
  orders.goLive();
  book.push({ id: "2" });
  await turn();
  while (waiting.length) {
    waiting.pop()?.();
    await turn();
  }
  assert.deepEqual(orders.pluck("id"), ["1", "2"]);
});

test("an answer to a board that was turned off meanwhile does not undo what it shows when it is on again", async () => {
  const book = [{ id: "1" }];
  /** @type {(() => void)[]} */
  const waiting = [];
  const ask = () => {
    const now = [...book];
    return new Promise((resolve) => waiting.push(() => resolve(now)));
  };
  const gate = gateOf();
  const orders = new Orders(/** @type {any} */ ({ orders: ask }), gate);
  orders.goLive();
  await turn();
  waiting.pop()?.();
  await turn();
  orders.goStill();
  book.push({ id: "2" });
  orders.goLive();
  await turn();
  while (waiting.length) {
    waiting.pop()?.();
    await turn();
  }
  assert.deepEqual(orders.pluck("id"), ["1", "2"]);
});

/** Orders that follow a gate without a gateway, and what an event does to them. @param {any} shop */
async function following(shop) {
  const gate = gateOf();
  const orders = new Orders(/** @type {any} */ (shop), gate);
  orders.goLive();
  for (let i = 0; i < 4; i++) await turn();
  const happens = (/** @type {string} */ topic, /** @type {any} */ data) => gate.trigger("orders.*.*", data, { topic, data, offset: null });
  return { orders, happens };
}

test("a deletion that comes after its own undoing changes nothing", async () => {
  const { orders, happens } = await following({ orders: async () => [{ id: "1", version: 5 }] });
  orders.discard("1");
  orders.welcome({ id: "1", version: 7 });
  happens("orders.1.deleted", { id: "1", version: 6 });
  assert.deepEqual(orders.pluck("version"), [7]);
  happens("orders.1.deleted", { id: "1", version: 8 });
  assert.equal(orders.length, 0);
});

test("after a restart of the shop its new orders count, and late events of the old ones do not", async () => {
  let book = [{ id: "1", status: "shipped", version: 107 }, { id: "2", status: "new", version: 102 }];
  const shop = { since: 100, orders: async () => book };
  const { orders, happens } = await following(shop);
  book = [{ id: "1", status: "new", version: 200 }];
  shop.since = 200;
  orders.startOver();
  happens("orders.3.created", { id: "3", version: 108 });
  for (let i = 0; i < 4; i++) await turn();
  assert.deepEqual(orders.map((/** @type {any} */ order) => [order.id, order.get("status")]), [["1", "new"]]);
  happens("orders.3.created", { id: "3", version: 109 });
  happens("orders.1.updated", { id: "1", version: 201, status: "packed" });
  assert.deepEqual(orders.map((/** @type {any} */ order) => [order.id, order.get("status")]), [["1", "packed"]]);
});
