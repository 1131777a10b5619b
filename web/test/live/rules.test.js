/** How live models and collections read events. */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { byConvention, isStale } from "../../src/live/rules.js";

describe("byConvention", () => {
  const change = (prefix, topic, data) => byConvention(prefix)({ topic, data });

  it("reads id and verb after the prefix", () => {
    const data = { a: 1 };
    assert.deepEqual(change("orders", "orders.42.created", data), { op: "upsert", id: "42", attributes: data });
    assert.deepEqual(change("shop.orders", "shop.orders.42.shipped", data), { op: "merge", id: "42", attributes: data });
    assert.deepEqual(change("orders", "orders.42.deleted", null), { op: "remove", id: "42", attributes: undefined });
    for (const [topic, value] of [["orders.42", data], ["orders.42.items.1", data], ["orders.42.updated", "text"], ["orders.42.updated", [1]]]) {
      assert.equal(change("orders", topic, value), null);
    }
  });
});

describe("isStale", () => {
  it("compares versions where both have one", () => {
    assert.deepEqual([1, 2, 3, undefined, null].map((v) => isStale({ v }, { v: 2 }, "v")), [true, true, false, false, false]);
    assert.equal(isStale({ v: 2 }, { v: 2 }, "v", false), false);
    assert.equal(isStale({ v: 2 }, {}, "v"), false);
    assert.equal(isStale(undefined, { v: 2 }, "v"), false);
  });
});
