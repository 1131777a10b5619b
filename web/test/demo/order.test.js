/** The demo's orders: topics and data from any publisher. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { changeOf, merged, money } from "../../demo/src/order.js";

const ORDER = { id: "42", status: "packed", customer: "C", total_cents: 100, by: "ben", version: 7 };

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
  const data = JSON.parse('{"customer": 7, "total_cents": "3", "status": "lost", "__proto__": {"by": "x"}, "constructor": "y", "version": 1e999}');
  assert.deepEqual(changeOf("orders.1.updated", data).fields, { by: "outside" });
  assert.equal(changeOf("orders.1.updated", { customer: "n".repeat(9999) }).fields.customer?.length, 140);
});

test("fields of an event from outside are merged, and an unknown order has the rest by default", () => {
  const change = changeOf("orders.42.shipped", { customer: "UPS" });
  assert.deepEqual(merged(ORDER, change), { ...ORDER, status: "shipped", customer: "UPS", by: "outside" });
  assert.equal(merged(undefined, changeOf("orders.42.shipped", {})).customer, "Unknown customer");
});

test("an event that is older than what was fetched changes nothing", () => {
  for (const version of [6, 7]) assert.equal(merged(ORDER, changeOf("orders.42.failed", { ...ORDER, status: "failed", version })), ORDER);
  assert.equal(merged(ORDER, changeOf("orders.42.failed", { ...ORDER, status: "failed", version: 8 })).status, "failed");
});

test("cents are written as money", () => {
  assert.equal(money(129_900), "€1,299.00");
});
