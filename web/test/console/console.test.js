/** The console's pure parts: the faults in words, the history of the charts, the buffer of the tail, numbers in words. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, clock, count, counted, duration, milliseconds, percent, short } from "../../console/src/format.js";
import { History, MOST, pointOf } from "../../console/src/history.js";
import { poll } from "../../console/src/poll.js";
import { MOST as MOST_ENTRIES, TailBuffer } from "../../console/src/tail-buffer.js";
import { grouped, MOST as MOST_TOPICS, TopTopics } from "../../console/src/top-topics.js";
import { troubles } from "../../console/src/trouble.js";

const RATES = { published: 0, received: 0, repaired: 0, routed: 0, from_log: 0, sent: 0, discarded: 0, conflated: 0, gone: 0, joins: 0, refused: 0 };
const NOW = { clients: 0, subscriptions: 0, catching_up: 0, waiting: 0, queued_bytes: 0, fullest: 0, oldest_s: 0 };

/** @param {any} [more] */
const processOf = (more) => ({ id: "a", name: "one/1", silent_s: 0, admission: "admitting", revocations_known: true, draining: false, paused: [], lag: null, redis: null, bus_up: true, ...more });
/** @param {any} [more] */
const frameOf = (more) => ({ measured: true, rates: RATES, now: NOW, latency: null, lag: null, redis: null, namespaces: [{ name: "shop", bus_up: 1, processes: 1, error: "" }], processes: [processOf()], ...more });
/** @param {any} frame @param {any} [servers] @param {any} [consumers] @param {any} [elsewhere] */
const texts = (frame, servers, consumers, elsewhere) => troubles(frame, servers, consumers, elsewhere).map(({ severity, text }) => `${severity}: ${text}`);
const SERVER = { address: "a:1", used_memory: 1, maxmemory: 100, evicted_keys: 0, advice: ["role: primary with 1 replica(s); it refuses writes without them (min-replicas-to-write)", "disk: append-only file", "memory: maxmemory 100 MiB, noeviction; 1 MiB in use"] };
const CONSUMER = { name: "mail", namespace: "shop", lag: 0, leased: 0, waiting: 0, dead: 0, missed: 0, idle_s: 0.2, elsewhere: [] };

test("where all is well nothing is wrong", () => {
  assert.deepEqual(troubles(frameOf(), [SERVER], [CONSUMER]), []);
});

test("each thing that is wrong has words of its own, and what to do", () => {
  /** @type {[any, RegExp, any?, any?, any?][]} */
  const cases = [
    [frameOf({ error: "gone" }), /^bad: Redis does not answer/],
    [frameOf({ namespaces: [{ name: "shop", bus_up: 1, processes: 3, error: "x" }] }), /^bad: \/shop is not live at 2 of 3 processes/],
    [frameOf({ namespaces: [{ name: "shop", bus_up: 1, processes: 1, log_retention_s: 2.5 }] }), /^warning: The log of \/shop keeps an event for 2.5 s only/],
    [frameOf({ processes: [processOf({ silent_s: 4 })] }), /^bad: one\/1 has reported nothing for 4 s/],
    [frameOf({ processes: [processOf({ admission: "shedding" })] }), /^bad: one\/1 refuses newcomers/],
    [frameOf({ processes: [processOf({ admission: "full" })] }), /^warning: one\/1 is full/],
    [frameOf({ processes: [processOf({ revocations_known: false })] }), /^bad: one\/1 does not know who is revoked/],
    [frameOf({ processes: [processOf({ draining: true })] }), /^warning: one\/1 is about to stop/],
    [frameOf({ processes: [processOf({ lag: { max: 700 } })] }), /^warning: The event loop of one\/1 was blocked for 700 ms/],
    [frameOf({ processes: [processOf({ paused: ["connects"] }), processOf({ paused: ["connects"] })] }), /^warning: An operator has paused connects/],
    [frameOf({ now: { ...NOW, fullest: 0.8 } }), /^warning: The fullest client queue is 80 % full/],
    [frameOf({ now: { ...NOW, oldest_s: 7 } }), /^warning: An event has waited for a browser for 7 s/],
    [frameOf({ rates: { ...RATES, discarded: 12 } }), /^warning: 12 events per second are left out/],
    [frameOf({ rates: { ...RATES, repaired: 2 } }), /^warning: 2 events per second had to be read again/],
    [frameOf({ redis: { p99: 400 } }), /^warning: Redis takes 400 ms/],
    [frameOf(), /^bad: Redis is 95 % full/, [{ ...SERVER, used_memory: 95 }]],
    [frameOf(), /^bad: Redis has evicted 3 keys/, [{ ...SERVER, evicted_keys: 3 }]],
    [frameOf(), /^warning: Redis: no append-only file, so a restart loses the log or its end/, [{ ...SERVER, advice: ["disk: no append-only file, so a restart loses the log or its end: set appendonly yes"] }]],
    [frameOf(), /^warning: Redis: maxmemory-policy allkeys-lru/, [{ ...SERVER, advice: ["memory: maxmemory-policy allkeys-lru; a full Redis loses events without notice: set noeviction"] }]],
    [frameOf(), /^warning: Consumer mail has given up 1 task/, null, [{ ...CONSUMER, dead: 1 }]],
    [frameOf(), /^bad: Consumer mail has missed 2 events/, null, [{ ...CONSUMER, missed: 2 }]],
    [frameOf(), /^warning: Consumer mail is 5,000 events behind/, null, [{ ...CONSUMER, lag: 5000 }]],
    [frameOf(), /^bad: Consumer mail is on another Redis server, at mail-1\/9/, null, [{ ...CONSUMER, elsewhere: ["mail-1/9"] }]],
    [frameOf(), /^bad: Gateway web-1\/7: on another server\.$/, null, null, [{ text: "gateway web-1/7: on another server", remedy: "restart it" }]],
    [frameOf(), /^bad: Consumer mail does not run/, null, [{ ...CONSUMER, lag: 5, idle_s: 90 }]],
  ];
  for (const [frame, wanted, servers, consumers, elsewhere] of cases) {
    const found = troubles(frame, servers, consumers, elsewhere);
    assert.equal(found.length, 1, `${wanted}: ${JSON.stringify(found)}`);
    assert.match(texts(frame, servers, consumers, elsewhere)[0], wanted);
    assert.match(found[0].remedy, /\w{3}.*\.$/);
  }
});

test("the worst comes first", () => {
  const frame = frameOf({ now: { ...NOW, fullest: 0.9 }, processes: [processOf({ silent_s: 5 })] });
  assert.deepEqual(texts(frame).map((text) => text.split(":")[0]), ["bad", "warning"]);
});

test("a view shows the answer to what was asked last, and asks again while its page is visible and none is awaited", async (test) => {
  test.mock.timers.enable({ apis: ["setInterval"] });
  const [turn, reads, shown] = [() => new Promise(setImmediate), /** @type {any[]} */ ([]), /** @type {any[]} */ ([])];
  const page = { hidden: false };
  Object.assign(globalThis, { document: page });
  const read = () => new Promise((resolve, reject) => reads.push({ resolve, reject }));
  const { ask, close } = poll(1000, read, (answer) => shown.push(answer), (error) => shown.push(error));
  test.mock.timers.tick(5000);
  assert.equal(reads.length, 1, "one at a time");
  ask();
  reads[1].resolve("second");
  await turn();
  reads[0].reject("first");
  page.hidden = true;
  test.mock.timers.tick(5000);
  assert.deepEqual([reads.length, shown], [2, ["second"]]);
  page.hidden = false;
  test.mock.timers.tick(1000);
  reads[2].reject("a fault");
  await turn();
  test.mock.timers.tick(1000);
  close();
  reads[3].resolve("of a closed view");
  await turn();
  test.mock.timers.tick(5000);
  assert.deepEqual([reads.length, shown], [4, ["second", "a fault"]]);
  Reflect.deleteProperty(globalThis, "document");
});

test("the history is bounded, and a pause in it is a hole", () => {
  const history = new History();
  for (let at = 0; at < MOST + 50; at++) history.add(at, { sent: at });
  assert.equal(history.length, MOST);
  assert.deepEqual([history.newest("sent"), history.greatest("sent"), history.newest("none")], [MOST + 49, MOST + 49, null]);
  history.add(10, { sent: 7 }); // a clock that went back
  assert.equal(history.newest("sent"), MOST + 49);
  const before = history.length;
  history.add(MOST + 100, { sent: 1 });
  const [times, sent] = history.columns(["sent"]);
  assert.deepEqual([times.length, sent.at(-1), sent.at(-2)], [before, 1, null]);
});

test("a frame without rates is no zero in a chart", () => {
  assert.deepEqual(pointOf(frameOf({ measured: false })), {});
  assert.equal(pointOf(frameOf({ rates: { ...RATES, routed: 2, from_log: 3 } })).routed, 5);
  assert.equal(pointOf(frameOf()).p99, null);
});

const META = { id: "x", time: 1, offset: 1, replayed: false };

test("the tail keeps the newest entries, newest first", () => {
  const buffer = new TailBuffer();
  for (let nth = 0; nth < MOST_ENTRIES + 10; nth++) buffer.event(`orders.${nth}`, { nth }, META);
  assert.equal(buffer.shown.length, MOST_ENTRIES);
  assert.equal(/** @type {any} */ (buffer.shown[0]).topic, `orders.${MOST_ENTRIES + 9}`);
  assert.equal(buffer.received, MOST_ENTRIES + 10);
});

test("while it is paused nothing moves, what comes is counted, and it is there afterwards", () => {
  const buffer = new TailBuffer();
  buffer.event("a", 1, META);
  buffer.pause();
  buffer.event("b", 2, META);
  buffer.gap("3 events are missing here.", 2);
  assert.deepEqual([buffer.shown.length, buffer.waiting], [1, 2]);
  buffer.resume();
  assert.deepEqual(buffer.shown.map((each) => (each.kind === "event" ? each.topic : each.kind)), ["gap", "b", "a"]);
  assert.equal(buffer.waiting, 0);
});

test("the filter looks into topic and data", () => {
  const buffer = new TailBuffer();
  buffer.event("orders.42.shipped", { carrier: "UPS" }, META);
  buffer.event("orders.43.failed", null, META);
  buffer.filter = "ups";
  assert.deepEqual(buffer.shown.map((each) => /** @type {any} */ (each).topic), ["orders.42.shipped"]);
  buffer.filter = " 43 ";
  assert.equal(buffer.shown.length, 1);
  buffer.clear();
  assert.deepEqual([buffer.shown.length, buffer.received], [0, 0]);
});

test("of more topics than there is room for, none with many events is missing", () => {
  const table = new TopTopics();
  for (let nth = 0; nth < 20_000; nth++) {
    table.add(`rare.${nth}`, 10);
    if (nth % 4 === 0) table.add("often", 100);
    if (nth % 8 === 0) table.add("sometimes", 50);
  }
  const [first, second] = table.top(2);
  assert.deepEqual([first.topic, second.topic], ["often", "sometimes"]);
  assert.ok(first.events - first.error <= 5000 && first.events >= 5000);
  assert.ok(table.top(10_000).length <= MOST_TOPICS);
});

test("an event that stands for several counts for them", () => {
  const table = new TopTopics();
  table.add("a", 10, 2.5);
  assert.deepEqual(table.top(1), [{ topic: "a", events: 2.5, bytes: 25, error: 0 }]);
  assert.deepEqual(["orders.42.shipped", "users.ann", "a1.b"].map(grouped), ["orders.*.shipped", "users.ann", "*.b"]);
});

test("numbers are as short as they can be read", () => {
  assert.deepEqual([0, 0.01, 0.44, 9.96, 12.4, 999.7, 1234, 1.5e6, null, Number.NaN].map(short), ["0", "<0.1", "0.4", "10", "12", "1k", "1.2k", "1.5M", "–", "–"]);
  assert.deepEqual([0.123456, 1, 12.34, 2500, null].map(milliseconds), ["0.12 ms", "1 ms", "12 ms", "2.5 s", "–"]);
  assert.deepEqual([0, 1023, 1536, 5 * 2 ** 20].map(bytes), ["0 B", "1023 B", "1.5 KiB", "5 MiB"]);
  assert.deepEqual([0.25, 59, 99, 600, 7260, 200_000].map(duration), ["0.3 s", "59 s", "99 s", "10 min", "2 h 1 min", "2 d 7 h"]);
  assert.deepEqual([count(1234567), counted(1, "event"), counted(2, "event"), percent(0.125)], ["1,234,567", "1 event", "2 events", "13 %"]);
  assert.match(clock(0), /^\d\d:00:00\.000$/);
});
