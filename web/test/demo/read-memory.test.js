/** What a user of the demo has read: kept over a reload, and never broken by what is stored. */
import assert from "node:assert/strict";
import { it } from "node:test";
import { ReadMemory } from "../../demo/src/read-memory.js";

/** @param {Record<string, string>} [stored] */
function storage(stored = {}) {
  return {
    stored,
    getItem: (/** @type {string} */ key) => stored[key] ?? null,
    setItem: (/** @type {string} */ key, /** @type {string} */ value) => {
      stored[key] = value;
    },
  };
}

it("calls everything read for someone who was never here", () => {
  const memory = new ReadMemory("ana", () => storage(), 1000);
  assert.equal(memory.has({ id: "a", time: 999 }), true);
  assert.equal(memory.has({ id: "b", time: 1001 }), false);
});

it("knows after a reload what was not read, and what came meanwhile", () => {
  const kept = storage();
  new ReadMemory("ana", () => kept, 1000).keep([{ id: "c", time: 1300, read: false }, { id: "b", time: 1200, read: true }, { time: 1100, read: false }]);
  const memory = new ReadMemory("ana", () => kept, 5000);
  assert.deepEqual(["b", "c", "d"].map((id, nth) => memory.has({ id, time: 1200 + 100 * nth })), [true, false, false]);
  assert.equal(memory.has({ id: null, time: 1100 }), true);
  assert.equal(new ReadMemory("ben", () => kept, 5000).has({ id: "c", time: 1300 }), true);
});

it("keeps at most a hundred", () => {
  const kept = storage();
  new ReadMemory("ana", () => kept, 0).keep(Array.from({ length: 150 }, (_, n) => ({ id: `e${n}`, time: n, read: false })));
  assert.equal(JSON.parse(Object.values(kept.stored)[0]).unread.length, 100);
});

for (const stored of ["", "null", "{}", "[]", '{"untilMs":"x","unread":[]}', '{"untilMs":1,"unread":7}', "{"]) {
  it(`begins anew where the storage holds ${JSON.stringify(stored)}`, () => {
    assert.equal(new ReadMemory("ana", () => storage({ "headgate-demo read ana": stored }), 10).has({ id: "a", time: 5 }), true);
  });
}

it("goes on where the browser forbids the storage", () => {
  const memory = new ReadMemory("ana", () => { throw new Error("forbidden"); }, 10);
  memory.keep([{ id: "a", time: 20, read: false }]);
  assert.equal(memory.has({ id: "a", time: 5 }), true);
});
