/** The demo's story: the sources of the lanes and the verdicts, against histories of trouble. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { wordsOf } from "../../demo/src/bell.js";
import { placeOf } from "../../demo/src/people.js";
import { Sent, Story, WINDOW_MS } from "../../demo/src/story.js";
import { barsOf, spansOf } from "../../demo/src/strip.js";
import { drawer } from "./drawer.js";

const HISTORIES = Number(process.env.HEADGATE_HISTORIES ?? 300);
const UP = { offset: 0, waiting: 0, connection: "up" };
/** @param {number} number @param {number} offset */
const event = (number, offset) => ({ id: String(offset), time: 0, offset, data: { burst: { id: "a", number } } });

test("whatever breaks, each number counts once, and repaired ones are those that were missed", () => {
  for (let seed = 1; seed <= HISTORIES; seed++) {
    const draw = drawer(seed);
    const story = new Story();
    let [now, head, had, online, missed] = [0, 0, 0, true, 0];
    const catchUp = () => {
      while (online && had < head) story.take(event(had + 1, ++had), now);
      if (online) story.tick(now, { ...UP, offset: had });
    };
    const turn = () => {
      online = !online;
      if (online) story.up(now, head);
      else story.down(now);
    };
    for (let nth = draw(60); nth; nth--) {
      now += 100;
      const step = draw(5);
      if (step === 0 && had) story.take(event(had, had), now);
      else if (step === 1) turn();
      else {
        head++;
        if (!online) missed++;
      }
      catchUp();
      assert.equal(story.isWhole, online, `seed ${seed}`);
    }
    if (!online) turn();
    catchUp();
    const { seen, repaired, twice } = story.burst("a");
    assert.deepEqual([seen.size, repaired, story.shown.total], [head, missed, head + twice], `seed ${seed}`);
    assert.ok(story.gaps.every(({ toMs }) => toMs !== null));
  }
});

test("a repair lasts until the page has what the log had when it came back", () => {
  const story = new Story();
  story.down(1000);
  story.up(3000, 10);
  story.tick(3100, { ...UP, offset: 9 });
  story.tick(3200, { ...UP, offset: 10, waiting: 3 });
  assert.deepEqual([story.isWhole, story.repairMs], [false, null]);
  story.tick(3300, { ...UP, offset: 10 });
  assert.deepEqual([story.isWhole, story.repairMs], [true, 300]);
  assert.deepEqual(story.gaps, [{ fromMs: 1000, toMs: 3000 }]);
});

test("what was rolled back is counted apart from what was missed", () => {
  const story = new Story();
  story.gap({ reason: "rolled_back", count: 23 }, 1000);
  story.gap({ reason: "overflow", count: 5 }, 2000);
  assert.deepEqual([story.rolledBack.total, story.gapCount], [23, 1]);
});

test("a stamp that is not the server's counts as an event and nothing else", () => {
  const story = new Story();
  const stamps = [null, 7, "x", {}, { id: 1, number: 1 }, { id: "b", number: 0 }, { id: "b", number: 501 }, { id: "b", number: 1.5 }, { id: "b".repeat(41), number: 1 }];
  for (const burst of stamps) story.take({ id: "1", time: 0, offset: 1, data: { burst } }, 0);
  assert.deepEqual([story.shown.total, story.burst("b").seen.size], [stamps.length, 0]);
});

test("an event that both people have was sent once, when it was published", () => {
  const sent = new Sent();
  for (let person = 0; person < 2; person++) sent.take({ id: "1", time: 70_000, offset: 1, data: null }, 5000, 73_000);
  assert.deepEqual(sent.list, [{ atMs: 2000, count: 1 }]);
  sent.take({ id: "2", time: 99_000, offset: 2, data: null }, 5000, 73_000); // a fast clock
  assert.equal(sent.list[1].atMs, 5000);
});

test("a lane keeps within its room, however many events and troubles there were", () => {
  const bars = Array.from({ length: 400 }, (_, nth) => ({ atMs: nth * 500, count: 10 ** (nth % 6) }));
  const spans = Array.from({ length: 50 }, (_, nth) => ({ fromMs: nth * 4000, toMs: nth === 49 ? null : nth * 4000 + 10 }));
  const paths = [barsOf(bars, 200_000, 16, 15), spansOf(spans, 200_000, 16, 15)];
  for (const path of paths) {
    const boxes = [...path.matchAll(/M([\d.-]+) ([\d.-]+)h([\d.-]+)v([\d.-]+)/g)].map(([, ...box]) => box.map(Number));
    assert.ok(boxes.length > 10 && boxes.length <= WINDOW_MS / 500);
    for (const [x, y, width, height] of boxes) assert.ok(x >= 0 && x <= 600 && width > 0 && y >= 16 && y + height < 31.2);
  }
});

test("an item is put into words, and data of any shape stays text", () => {
  const nameOf = (/** @type {string} */ user) => (user === "ben" ? "Ben" : user);
  const data = { order: "42", customer: "Haruto Tanaka", by: "ben" };
  assert.deepEqual(wordsOf("orders.failed", data, nameOf), { title: "Order 42 failed", detail: "Haruto Tanaka · by Ben" });
  assert.equal(wordsOf("orders.shipped", data, nameOf).title, "Order 42 was shipped");
  for (const other of [null, 7, [], { order: 42 }, undefined]) assert.equal(wordsOf("shop.note", other, nameOf).title, "shop.note");
  assert.equal(wordsOf("shop.note", "x".repeat(1000), nameOf).detail.length, 140);
});

test("a pointer is a place on the board, or none", () => {
  assert.deepEqual(placeOf({ x: 0.5, y: 1 }), { x: 0.5, y: 1 });
  for (const meta of [null, undefined, 7, {}, { x: "0.5", y: 0 }, { x: -1, y: 0 }, { x: 0, y: Number.NaN }]) assert.equal(placeOf(meta), undefined);
});
