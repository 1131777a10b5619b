/** The demo's pulse: one entry for each of the last sixty seconds, bounded, and the same in words. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { HISTORY_S, Pulse, runs, summary } from "../../demo/src/pulse.js";

test("a minute has sixty seconds, the present one last, also when nothing happened", () => {
  const entries = new Pulse().seconds(123_456);
  assert.equal(entries.length, HISTORY_S);
  assert.deepEqual(entries.at(-1), { ago: 0, received: 0, takenBack: 0, slowestMs: null, conditions: [], notes: [], marks: [] });
  assert.equal(entries[0].ago, HISTORY_S - 1);
});

test("events count in their second, and the slowest of a second stands for it", () => {
  const pulse = new Pulse();
  for (const at of [100_000, 100_999, 101_000]) pulse.received(at);
  pulse.shown(100_500, 40);
  pulse.shown(100_600, 15);
  const [before, now] = pulse.seconds(101_500).slice(-2);
  assert.deepEqual([before.received, before.slowestMs], [2, 40]);
  assert.deepEqual([now.received, now.slowestMs], [1, null]);
});

test("seconds older than a minute are dropped", () => {
  const pulse = new Pulse();
  pulse.received(1_000);
  pulse.received(1_000 + HISTORY_S * 1000);
  assert.equal(pulse.seconds(1_000 + HISTORY_S * 1000).reduce((sum, each) => sum + each.received, 0), 1);
});

test("a condition marks every second that it touches, until it ends", () => {
  const pulse = new Pulse();
  pulse.begin("offline", 50_900);
  pulse.begin("offline", 51_500);
  assert.equal(pulse.lasts("offline"), true);
  assert.deepEqual(runs(pulse.seconds(52_100)), [{ condition: "offline", from: 57, to: 60 }]);
  pulse.end("offline", 52_100);
  assert.equal(pulse.lasts("offline"), false);
  assert.deepEqual(runs(pulse.seconds(55_000)), [{ condition: "offline", from: 54, to: 57 }]);
});

test("a stall that is known only afterwards is entered afterwards, beside what else there was", () => {
  const pulse = new Pulse();
  pulse.begin("catching up", 71_000);
  pulse.lasted("stalled", 70_000, 72_000);
  assert.deepEqual(pulse.seconds(72_500).slice(-3).map(({ conditions }) => conditions), [
    ["stalled"],
    ["catching up", "stalled"],
    ["catching up"],
  ]);
});

test("notes of a second are bounded, and a condition is named once", () => {
  const pulse = new Pulse();
  for (let i = 0; i < 1000; i++) {
    pulse.note(80_000, `note ${i}`);
    pulse.lasted("stalled", 80_000, 80_001);
  }
  const now = pulse.seconds(80_000).at(-1);
  assert.deepEqual(now?.notes, ["note 0", "note 1", "note 2", "note 3"]);
  assert.deepEqual(now?.conditions, ["stalled"]);
});

test("the summary says in words what the chart shows", () => {
  const pulse = new Pulse();
  pulse.received(90_000);
  pulse.received(90_010);
  pulse.shown(90_020, 2500);
  pulse.lasted("stalled", 88_000, 89_999);
  assert.equal(
    summary(pulse.seconds(90_100)),
    "2 events in the last minute, at most 2 in a second; the slowest shown 2.5 seconds after it was published; stalled during 2 of the seconds",
  );
  assert.equal(summary(new Pulse().seconds(0)), "0 events in the last minute, at most 0 in a second");
});

test("events that the log has lost are taken back where they were received, the newest first", () => {
  const pulse = new Pulse();
  for (let offset = 1; offset <= 10; offset++) pulse.received(100_000, offset);
  for (let offset = 11; offset <= 20; offset++) pulse.received(101_000, offset);
  pulse.takeBack(6);
  assert.deepEqual(pulse.seconds(101_500).slice(-2).map(({ takenBack }) => takenBack), [5, 10]);
  assert.match(summary(pulse.seconds(101_500)), /about 15 of them taken back/);
});

test("offsets that come again are other events", () => {
  const pulse = new Pulse();
  for (let offset = 1; offset <= 10; offset++) pulse.received(100_000, offset);
  pulse.takeBack(6);
  for (let offset = 6; offset <= 8; offset++) pulse.received(101_000, offset);
  pulse.takeBack(8);
  assert.deepEqual(pulse.seconds(101_500).slice(-2).map(({ takenBack }) => takenBack), [5, 1]);
});
