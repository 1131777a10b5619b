/** The demo's tally: a burst is whole when every number was drawn, and only then. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { seconds, stampOf, Tally } from "../../demo/src/tally.js";

const ONLINE = { online: true, lost: 0 };

/** @param {Tally} tally @param {number} from @param {number} to @param {number} [lagMs] */
function see(tally, from, to, lagMs = 10) {
  for (let number = from; number <= to; number++) tally.take(number);
  tally.show(lagMs);
}

test("a stamp is read from an event's data", () => {
  assert.deepEqual(stampOf({ id: "42", burst: { id: "a", number: 3, of: 50 } }), { id: "a", number: 3, of: 50 });
});

test("data of any other shape has no stamp", () => {
  const hostile = [
    null, 7, "text", [], {}, { burst: null }, { burst: "x" }, { burst: {} }, { burst: { id: 1, number: 1, of: 1 } },
    { burst: { id: "a", number: 0, of: 5 } }, { burst: { id: "a", number: 6, of: 5 } }, { burst: { id: "a", number: 1.5, of: 5 } },
    { burst: { id: "a", number: 1, of: 1e9 } }, { burst: { id: "x".repeat(41), number: 1, of: 2 } }, { burst: { id: "a", number: "1", of: 2 } },
    Object.create({ burst: { id: "a", number: 1, of: 2 } }),
  ];
  for (const data of hostile) assert.equal(stampOf(data), null, JSON.stringify(data));
});

test("a burst that was drawn whole is told so, with the slowest", () => {
  const tally = new Tally("a", 3);
  see(tally, 1, 2, 9800);
  see(tally, 3, 3, 20);
  tally.report = { published: 3, done: true };
  assert.deepEqual(tally.verdict(ONLINE), {
    outcome: "whole",
    text: "Nothing lost: 3 published, 3 shown, none twice; the slowest 9.8 s after it was published.",
  });
});

test("it is not whole before the server says that it is over", () => {
  const tally = new Tally("a", 3);
  see(tally, 1, 3);
  assert.equal(tally.verdict(ONLINE).outcome, "publishing");
  tally.report = { published: 2, done: false };
  assert.equal(tally.verdict(ONLINE).outcome, "publishing");
});

test("events that were dispatched and not drawn do not count as shown", () => {
  const tally = new Tally("a", 1);
  tally.take(1);
  tally.report = { published: 1, done: true };
  assert.equal(tally.unshown, true);
  assert.equal(tally.shown, 0);
  assert.equal(tally.verdict(ONLINE).outcome, "waiting");
});

test("an event that comes twice does not make up for one that is missing", () => {
  const tally = new Tally("a", 3);
  for (const number of [1, 2, 2]) tally.take(number);
  tally.show(1);
  tally.report = { published: 3, done: true };
  assert.equal(tally.twice, 1);
  assert.equal(tally.verdict(ONLINE).outcome, "waiting");
  see(tally, 3, 3);
  assert.match(tally.verdict(ONLINE).text, /3 shown, 1 of them twice/);
});

test("offline, the missing ones are said to wait; with a gap, to be gone", () => {
  const tally = new Tally("a", 10);
  see(tally, 1, 4);
  tally.report = { published: 10, done: true };
  assert.match(tally.verdict({ online: false, lost: 0 }).text, /^6 of 10 events wait in the log/);
  assert.match(tally.verdict(ONLINE).text, /^Catching up: 6 of 10/);
  assert.deepEqual(tally.verdict({ online: true, lost: 6 }), {
    outcome: "short",
    text: "6 of 10 events were not shown, and the gateway said so: a gap of 6.",
  });
});

test("a burst that the bus cut short is whole with what has a receipt", () => {
  const tally = new Tally("a", 50);
  see(tally, 1, 7);
  tally.report = { published: 7, done: true, error: "the bus is unavailable" };
  const { outcome, text } = tally.verdict(ONLINE);
  assert.equal(outcome, "whole");
  assert.match(text, /7 published, 7 shown.*ended early: the bus is unavailable/);
});

test("a tab that came in the middle answers for what came after", () => {
  const tally = new Tally("a", 10, 4);
  see(tally, 4, 10);
  tally.report = { published: 10, done: true };
  assert.equal(tally.published, 7);
  assert.equal(tally.verdict(ONLINE).outcome, "whole");
});

test("times are written for people", () => {
  assert.deepEqual([0, 12.4, 994, 995, 9_840].map(seconds), ["0 ms", "12 ms", "994 ms", "1.0 s", "9.8 s"]);
});

test("events that the log has lost are whole when this tab was told of each that it had shown", () => {
  const tally = new Tally("a", 60);
  see(tally, 1, 60);
  tally.report = { published: 60, done: true, lost: 25 };
  assert.equal(tally.verdict(ONLINE).outcome, "waiting");
  assert.match(tally.verdict(ONLINE).text, /25 events that are shown here, and this page is not told yet/);
  assert.equal(tally.verdict({ ...ONLINE, takenBack: 24 }).outcome, "waiting");
  const { outcome, text } = tally.verdict({ ...ONLINE, takenBack: 25 });
  assert.equal(outcome, "whole");
  assert.match(text, /Redis lost its newest 25 events, and this page was told of each/);
});

test("a tab that was away while the log lost its end waits for the rest and for nothing else", () => {
  const tally = new Tally("a", 60);
  see(tally, 1, 10);
  tally.report = { published: 60, done: true, lost: 25 };
  assert.match(tally.verdict({ online: false, lost: 0 }).text, /Offline: 25 of 35 events are still to come/);
  assert.match(tally.verdict(ONLINE).text, /Catching up: 25 of 35/);
  see(tally, 11, 35);
  assert.equal(tally.verdict(ONLINE).outcome, "whole");
  assert.match(tally.verdict(ONLINE).text, /35 of 60 events are in the log and shown/);
});
