/** Payloads: the published forms, and the refusals. */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import vm from "node:vm";
import { checkPayload } from "../../src/language/payload.js";

describe("checkPayload", () => {
  it("returns the data as JSON makes it, up to the limit and not a byte beyond", () => {
    const plain = { at: "1970-01-01T00:00:00.000Z", url: "http://a.test/", big: "7", deep: [[{ "": null, "a b": [false, -1.5] }]] };
    const given = { at: new Date(0), url: new URL("http://a.test"), big: { toJSON: (key) => (key === "big" ? "7" : undefined) }, deep: plain.deep };
    assert.deepEqual(checkPayload(given, 200), plain);
    // Of another realm, and without a prototype.
    assert.deepEqual(checkPayload(vm.runInNewContext("({ a: [{ b: 1 }] })")), { a: [{ b: 1 }] });
    assert.deepEqual(checkPayload(Object.assign(Object.create(null), { a: 1 })), { a: 1 });
    assert.ok(Object.hasOwn(checkPayload(JSON.parse('{"__proto__": 1}')), "__proto__"));
    for (const [data, size] of [["", 2], ["é", 4], ["\ud83d\ude00", 6], [null, 4], [[1, 2], 5]]) {
      checkPayload(data, size);
      assert.throws(() => checkPayload(data, size - 1), { code: "payload_too_large", parts: { size, limit: size - 1, where: "browser" } });
    }
  });
});

describe("checkPayload refuses what JSON would silently change, and names the place", () => {
  class Order {
    id = 7;
  }
  const loop = { list: [] };
  loop.list.push({ up: loop });
  const deep = (levels) => (levels ? [deep(levels - 1)] : 1);
  const named = Object.assign([1, 2], { total: 2 });
  for (const [what, data, path, reason] of [
    ["nothing", undefined, "$", "undefined"],
    ["an undefined member", { a: { note: undefined } }, "$.a.note", "undefined"],
    ["an undefined item", { list: [1, undefined] }, "$.list[1]", "undefined"],
    // biome-ignore lint/suspicious/noSparseArray: that is the case
    ["a hole", { list: [1, , 3] }, "$.list[1]", "undefined"],
    ["an array with names", { named }, "$.named", "an array with names"],
    ["NaN", { "a b": [0, Number.NaN] }, '$["a b"][1]', "NaN"],
    ["infinity", { a: -Infinity }, "$.a", "-Infinity"],
    ["minus zero", { a: -0 }, "$.a", "-0"],
    ["a bigint", { a: 7n }, "$.a", "a bigint"],
    ["a function", { a: () => {} }, "$.a", "a function"],
    ["a symbol", { a: Symbol("x") }, "$.a", "a symbol"],
    ["a member named by a symbol", { a: { [Symbol("x")]: 1 } }, "$.a", "an object with a symbol"],
    ["an invalid date", { at: new Date("soon") }, "$.at", "an invalid date"],
    ["a Map", { a: new Map([[1, 2]]) }, "$.a", "of class Map"],
    ["a Set", new Set([1]), "$", "of class Set"],
    ["a typed array", { a: new Uint8Array(2) }, "$.a", "of class Uint8Array"],
    ["a buffer", { a: Buffer.from("x") }, "$.a", "of class Buffer"],
    ["an ArrayBuffer", { a: new ArrayBuffer(2) }, "$.a", "of class ArrayBuffer"],
    ["an error", { a: new Error("x") }, "$.a", "of class Error"],
    ["a regular expression", { a: /x/ }, "$.a", "of class RegExp"],
    ["a number in an object", { a: Object(7) }, "$.a", "of class Number"],
    ["an object of a class", { orders: [new Order()] }, "$.orders[0]", "of class Order"],
    ["what a toJSON returns", { a: { toJSON: () => undefined } }, "$.a", "undefined"],
    ["a lone surrogate", { a: "x\ud800" }, "$.a", "a lone surrogate"],
    ["a name with a lone surrogate", { "\udc00": 1 }, '$["\\udc00"]', "a lone surrogate"],
    ["an object in itself", loop, "$.list[0].up", "a cycle"],
    ["more levels than the gateway takes", deep(65), `$${"[0]".repeat(64)}`, "deeper than 64"],
    ["a getter that throws", { get a() { throw Error("mine"); } }, "$", "Error: mine"],
  ]) {
    it(what, () => assert.throws(() => checkPayload(data), { code: "not_serializable", parts: { path, reason } }));
  }

  it("takes as many levels as the gateway", () => assert.deepEqual(checkPayload(deep(64)), deep(64)));

  it("says what to write in its place", () => {
    for (const [data, cure] of [[{ a: undefined }, /\$\.a is undefined\. Leave the member out, or write null\./], [new Map(), /Object\.fromEntries\(map\)/], [new Set(), /\[\.\.\.set\]/], [1n, /String\(value\)/], [new Order(), /toJSON/], ["\ud800", /toWellFormed/]]) {
      assert.throws(() => checkPayload(data), { message: cure });
    }
  });
});
