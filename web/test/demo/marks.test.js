/** The words over the demo's chart: none covers another, and the newest have the right of way. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { placed } from "../../demo/src/marks.js";

test("words that are far from each other stand in the first row, where they belong", () => {
  const found = placed([{ text: "offline", x: 120 }, { text: "caught up", x: 260 }], 400, 150);
  assert.deepEqual(found.map(({ text, left }) => [text, left]), [["caught up", 260], ["offline", 120]]);
  assert.equal(new Set(found.map(({ top }) => top)).size, 1);
});

test("a word near another goes below it", () => {
  const [newer, older] = placed([{ text: "offline", x: 200 }, { text: "caught up", x: 210 }], 400, 150);
  assert.equal(newer.text, "caught up");
  assert.ok(older.top > newer.top);
});

test("a word at the edge stays within the chart, and leaves the name of the scale free", () => {
  const [last, first] = placed([{ text: "offline", x: 0 }, { text: "nothing lost", x: 399 }], 400, 150);
  assert.ok(last.left < 400 - 60);
  assert.equal(first.left, 0);
  assert.ok(first.top > last.top);
});

test("where there is no room, the oldest words are left out", () => {
  const words = Array.from({ length: 20 }, (_, index) => ({ text: `word ${index}`, x: 100 + index }));
  const found = placed(words, 200, 44);
  assert.deepEqual(found.map(({ text }) => text), ["word 19"]);
});

test("where there is no room, a word gives way to another before it is there twice", () => {
  const words = [{ text: "offline", x: 120 }, { text: "nothing lost", x: 130 }, { text: "nothing lost", x: 300 }];
  assert.deepEqual(placed(words, 400, 44).map(({ text, left }) => [text, left]), [["nothing lost", 300], ["offline", 120]]);
});

test("a chart without a size has no words", () => {
  assert.deepEqual(placed([{ text: "offline", x: 0 }], 0, 0), []);
});
