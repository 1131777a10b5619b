/** The pure parts of the client, each alone. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { afterEach, beforeEach, describe, it, mock } from "node:test";
import vm from "node:vm";
// Private modules, which dist has inside its files and does not export: these tests run on the sources.
import { PendingEdits } from "../src/backbone/pending-edits.js";
import { SEEN } from "../src/backbone/seen.js";
import { reconnectDelayMs } from "../src/base/backoff.js";
import { createBudget } from "../src/base/budget.js";
import { Machine } from "../src/base/machine.js";
import { createSlicedQueue, LINE, SLICES } from "../src/base/sliced-queue.js";
import { CONNECTION, coarseOf, statusOf } from "../src/connection/connection-state.js";
import { refreshDelayMs } from "../src/connection/token.js";
import { STREAM } from "../src/events.js";
import { checkPayload } from "../src/language/payload.js";
import { FOLLOW } from "../src/live/follow.js";
import { byConvention, isStale } from "../src/live/rules.js";
import { CURSOR, createCursor } from "../src/session/cursor.js";
import { createReplays } from "../src/session/replays.js";
import { SUBSCRIPTION } from "../src/subscriptions/subscription.js";
import { createSubscriptions } from "../src/subscriptions/subscriptions.js";
import { settle } from "./fake-gateway.js";

/** The client's monotonic clock. */
let clockMs = 0;

beforeEach(() => {
  clockMs = 0;
  mock.method(performance, "now", () => clockMs);
});

afterEach(() => mock.restoreAll());

describe("reconnectDelayMs", () => {
  it("grows though the minimum is 0, so that nothing spins", () => {
    mock.method(Math, "random", () => 0.5);
    assert.deepEqual([0, 1, 2, 20, 2000].map((attempt) => reconnectDelayMs(attempt, 0, 20_000)), [100, 200, 400, 10_000, 10_000]);
  });

  it("is spread between the minimum and a ceiling that doubles up to the maximum", () => {
    let random = 0;
    mock.method(Math, "random", () => random);
    const spans = [0, 1, 2, 3, 4, 5, 6, 1000].map((attempt) =>
      [0, 1].map((each) => {
        random = each;
        return reconnectDelayMs(attempt, 500, 20_000);
      }),
    );
    assert.deepEqual(spans, [[500, 1000], [500, 2000], [500, 4000], [500, 8000], [500, 16_000], [500, 20_000], [500, 20_000], [500, 20_000]]);
  });
});

/** Every table of states, by its first state. */
const TABLES = {
  connection: [CONNECTION, "idle"],
  subscription: [SUBSCRIPTION, "idle"],
  cursor: [CURSOR, "none"],
  line: [LINE, "open"],
  slices: [SLICES, "resting"],
  follow: [FOLLOW, "idle"],
  "list of shown events": [SEEN, "idle"],
  loop: [STREAM, "new"],
};

/** Return the states that have no such step. */
const lacking = (table, step) => Object.keys(table).filter((state) => !(step in table[state]));

for (const [name, [table, first]] of Object.entries(TABLES)) {
  describe(`the states of a ${name}`, () => {
    /** The shortest way to each state. */
    const ways = new Map([[first, []]]);
    for (const [state, way] of ways) {
      for (const [step, next] of Object.entries(table[state])) if (!ways.has(next)) ways.set(next, [...way, step]);
    }
    const steps = new Set(Object.values(table).flatMap(Object.keys));

    it("can all be reached", () => assert.deepEqual([...ways.keys()].sort(), Object.keys(table).sort()));

    for (const [state, possible] of Object.entries(table)) {
      it(`lead from "${state}" to where the table says, and a step that it does not name is refused`, () => {
        for (const step of steps) {
          const machine = new Machine(table, first);
          for (const before of ways.get(state)) machine.take(before);
          assert.ok(machine.is(state));
          assert.equal(machine.can(step), step in possible);
          if (step in possible) assert.deepEqual([machine.take(step), machine.state], [possible[step] !== state, possible[step]]);
          else assert.throws(() => machine.take(step), new RegExp(`no step "${step}" from "${state}"`));
        }
      });
    }
  });
}

/** The tables of the guide that begin with a word: word → the words that follow it. */
const guide = await readFile(new URL("../../docs/guide.md", import.meta.url), "utf8");
const tableOf = (word) => {
  const rows = guide.slice(guide.indexOf(`| ${word} | meaning | next |`)).split("\n\n")[0].split("\n").slice(2);
  return Object.fromEntries(rows.map((row) => row.split("|").slice(1, -1)).map(([each, , next]) => [each.match(/\w+/)[0], (next.match(/\w+/g) ?? []).sort()]));
};
/** Which words follow each in a table of states, where several states may have one word. */
const follows = (table, wordOf) => {
  const found = {};
  for (const [state, steps] of Object.entries(table)) {
    const next = found[wordOf(state)] ?? new Set();
    found[wordOf(state)] = next;
    for (const each of Object.values(steps)) if (wordOf(each) !== wordOf(state)) next.add(wordOf(each));
  }
  return Object.fromEntries(Object.entries(found).map(([word, next]) => [word, [...next].sort()]));
};

describe("the guide", () => {
  it("names each status of a connection and those that follow it, as the table of states has them", () => {
    assert.deepEqual(tableOf("`gate.status`"), follows(CONNECTION, statusOf));
  });

  it("names each status of a subscription and those that follow it, as the table of states has them", () => {
    assert.deepEqual(tableOf("`subscription.status`"), follows(SUBSCRIPTION, (state) => state));
  });
});

describe("a connection", () => {
  it("can be closed from each state, and lost from each that has a connection or an attempt", () => {
    assert.deepEqual(lacking(CONNECTION, "close"), ["closed"]);
    assert.deepEqual(lacking(CONNECTION, "lose"), ["idle", "dispatching", "waiting", "refused", "paused", "closed"]);
    // A coarser word follows from the status alone.
    assert.deepEqual(Object.keys(CONNECTION).filter((phase) => coarseOf(phase) === "up"), ["live", "catching_up", "moving"]);
  });
});

describe("a subscription", () => {
  it("is told of the end of a connection in each state, and never forgotten while the gateway may have it", () => {
    assert.deepEqual(lacking(SUBSCRIPTION, "disconnect"), []);
    assert.deepEqual(lacking(SUBSCRIPTION, "release"), ["idle", "requested", "active", "changed", "releasing"]);
  });
});

describe("Budget", () => {
  /** Return a function that takes a request at a time. */
  function taker(limits) {
    const take = createBudget(limits);
    return (nowMs) => {
      clockMs = nowMs;
      return take();
    };
  }

  it("is without end where the gateway names no limits", () => {
    const take = taker({});
    assert.deepEqual([0, 0, 0].map(take), [0, 0, 0]);
  });

  it("lets half of the burst go at once, then half of the rate", () => {
    const take = taker({ inboundPerS: 10, inboundBurst: 8 });
    assert.deepEqual([1, 2, 3, 4].map(() => take(0)), [0, 0, 0, 0]);
    assert.deepEqual([0, 100, 200, 200].map(take), [200, 100, 0, 200]);
  });

  it("saves up no more than the burst", () => {
    const take = taker({ inboundPerS: 10, inboundBurst: 4 });
    assert.deepEqual([1, 2, 3].map(() => take(1_000_000)), [0, 0, 200]);
  });
});

describe("Cursor", () => {
  const none = () => {};
  let replays;
  let cursor;

  beforeEach(() => {
    replays = createReplays();
    cursor = createCursor(undefined, replays, none);
  });

  const welcome = (epoch, offset, resumed = null) => cursor.welcome({ epoch, offset, resumed });
  const seen = (offset, more) => cursor.admit({ id: null, time: 0, offset, ...more })?.("p") ?? false;

  /** The replays that are not over, as the next connection asks for them. */
  const expected = () => {
    const asked = [];
    replays.rewind((pattern, sinces) => asked.push(...sinces.map((since) => [pattern, since])), cursor.position());
    return asked;
  };

  it("resumes from nothing until it has a position", () => {
    assert.equal(cursor.resume(), undefined);
    welcome("e", 0);
    assert.deepEqual([cursor.resume(), cursor.state()], [{ epoch: "e", offset: 0 }, "resuming"]);
  });

  it("goes on from the position of an earlier page", () => {
    cursor = createCursor({ epoch: "e", offset: 7 }, replays, none);
    assert.deepEqual(cursor.resume(), { epoch: "e", offset: 7 });
    welcome("e", 9, true);
    assert.deepEqual([7, 8].map((offset) => seen(offset, replayed)), [false, true]);
  });

  it("is catching up from the welcome that resumes until it is told or sees that it is live", () => {
    const states = [];
    cursor = createCursor(undefined, replays, () => states.push(cursor.state()));
    const resume = (head) => {
      cursor.resume();
      welcome("e", head, true);
    };
    welcome("e", 5);
    resume(90);
    seen(6, replayed);
    seen(91);
    resume(120);
    cursor.follow({ epoch: "e", offset: 120 });
    // The queue was full: the gateway reads on from the log, on the same connection.
    seen(121, replayed);
    seen(122);
    // Nothing was missed.
    resume(122);
    const resumed = ["resuming", "catching_up", "live"];
    assert.deepEqual(states, ["live", ...resumed, ...resumed, "catching_up", "live", ...resumed]);
  });

  it("takes one welcome for each attempt, and no other", () => {
    assert.deepEqual([welcome("e", 5), welcome("e", 9)], [true, false]);
    assert.deepEqual(cursor.position(), { epoch: "e", offset: 5 });
    cursor.resume();
    assert.deepEqual([welcome("e", 9, true), welcome("f", 1, false)], [true, false]);
    assert.equal(cursor.position().epoch, "e");
  });

  it("never moves back by itself, in another epoch neither", () => {
    welcome("e", 5);
    cursor.follow({ epoch: "e", offset: 3 });
    cursor.skip(4);
    assert.deepEqual(cursor.position(), { epoch: "e", offset: 5 });
    cursor.follow({ epoch: "f", offset: 1 });
    assert.deepEqual(cursor.position(), { epoch: "f", offset: 5 });
  });

  it("moves back to where the log has lost its end, from which everything is new", () => {
    welcome("e", 5);
    for (const offset of [6, 8]) seen(offset);
    cursor.rollBack(6, "f");
    assert.deepEqual([cursor.position(), cursor.state()], [{ epoch: "f", offset: 6 }, "live"]);
    assert.deepEqual([6, 7, 8].map((offset) => seen(offset)), [false, true, true]);
  });

  it("does not move forward to where the log has lost its end: what lies between may still come", () => {
    welcome("e", 5);
    cursor.rollBack(9, "f");
    assert.deepEqual(cursor.position(), { epoch: "f", offset: 5 });
    assert.deepEqual([5, 7].map((offset) => seen(offset)), [false, true]);
  });

  it("admits an event above it, once", () => {
    welcome("e", 5);
    assert.deepEqual([5, 6, 6, 8, 7].map((offset) => seen(offset)), [false, true, false, true, false]);
    assert.equal(seen(4, replayed), false);
  });

  /** Whether the handlers of these patterns see an event that matches all of them. */
  const who = (offset, more) => {
    const admits = cursor.admit({ id: null, time: 0, offset, ...more });
    return ["p", "q"].filter((pattern) => admits?.(pattern)).join("");
  };
  const replayed = { replayed: true };

  it("admits the past to the pattern that asked for it, once, until a new event ends it", () => {
    welcome("e", 50);
    replays.expect("p", { last: 5 });
    assert.deepEqual([10, 10, 12, 11, 50].map((offset) => who(offset, replayed)), ["p", "", "p", "", "p"]);
    assert.equal(who(51, replayed), "pq");
    assert.deepEqual(expected(), []);
    assert.equal(who(49, replayed), "");
    assert.equal(cursor.position().offset, 51);
  });

  it("does not take a past for over that a broken connection has interrupted, though new events come before it goes on", () => {
    welcome("e", 50);
    replays.expect("p", { last: 5 });
    assert.equal(who(40, replayed), "p");
    cursor.resume();
    welcome("e", 60, true);
    assert.deepEqual(expected(), [["p", { epoch: "e", offset: 40 }]]);
    assert.deepEqual([51, 40, 41, 51, 60].map((offset) => who(offset, replayed)), ["pq", "", "p", "", "pq"]);
    assert.deepEqual(expected(), []);
  });

  it("admits the past that was asked for before the first welcome", () => {
    replays.expect("p", { last: 1 });
    welcome("e", 50);
    assert.deepEqual([50, 51].map((offset) => who(offset, replayed)), ["p", "pq"]);
  });

  it("is not misled by events that were under way before the past began", () => {
    welcome("e", 50);
    replays.expect("p", { offset: 40 });
    assert.equal(who(51), "pq");
    assert.deepEqual([41, 51, 50].map((offset) => who(offset, replayed)), ["p", "", "p"]);
    assert.deepEqual(expected(), [["p", { epoch: "e", offset: 50 }]]);
  });

  it("stops waiting for a past that does not come", () => {
    welcome("e", 0);
    replays.expect("p", { offset: 0 });
    for (let offset = 1; offset <= 1001; offset++) who(offset);
    assert.deepEqual(expected(), []);
    replays.expect("p", { offset: 0 });
    replays.forget("p");
    assert.equal(who(5, replayed), "");
  });

  it("keeps the old position until the gap of another log is told, and then takes anything first", () => {
    welcome("e", 50);
    cursor.resume();
    welcome("f", 9, false);
    assert.deepEqual([cursor.state(), cursor.position()], ["announced", { epoch: "e", offset: 50 }]);
    cursor.restart();
    assert.deepEqual(cursor.position(), { epoch: "f", offset: 9 });
    assert.deepEqual([4, 4, 5].map((offset) => seen(offset)), [true, false, true]);
    assert.deepEqual(cursor.position(), { epoch: "f", offset: 5 });
  });

  it("forgets an announced log whose gap was not told when the next attempt begins", () => {
    welcome("e", 50);
    cursor.resume();
    welcome("f", 9, false);
    assert.deepEqual(cursor.resume(), { epoch: "e", offset: 50 });
  });

  it("keeps where to resume when the log is lost, and believes the next position, even a lower one", () => {
    welcome("e", 50);
    cursor.restart();
    assert.deepEqual(cursor.position(), { epoch: "e", offset: 50 });
    cursor.follow({ epoch: "e", offset: 3 });
    assert.deepEqual(cursor.position(), { epoch: "e", offset: 3 });
    assert.deepEqual([3, 4].map((offset) => seen(offset)), [false, true]);
  });
});

describe("SlicedQueue", () => {
  const IDLE = { full: () => {}, drained: () => {}, empty: () => {} };
  let queue;

  afterEach(() => queue.close());

  it("dispatches at once while there is time, and in slices when there is not", async () => {
    clockMs = 0;
    const dispatched = [];
    queue = createSlicedQueue(
      100,
      (message) => {
        dispatched.push(message);
        clockMs += 5;
      },
      { ...IDLE, full: () => assert.fail("not full") },
    );
    for (let n = 0; n < 7; n++) queue.put(n);
    assert.deepEqual(dispatched, [0, 1, 2]);
    assert.equal(queue.depth(), 4);
    while (queue.depth()) await settle();
    assert.deepEqual(dispatched, [0, 1, 2, 3, 4, 5, 6]);
  });

  it("keeps order when a dispatch brings another message", () => {
    const dispatched = [];
    queue = createSlicedQueue(
      100,
      (message) => {
        dispatched.push(message);
        if (message === "a") queue.put("c");
      },
      IDLE,
    );
    queue.put("a");
    queue.put("b");
    assert.deepEqual(dispatched, ["a", "c", "b"]);
  });

  it("says once that it is full, discards nothing, and says when it is empty", async () => {
    const told = [];
    queue = createSlicedQueue(
      2,
      (message) => {
        told.push(message);
        clockMs += 1000;
      },
      { full: () => told.push("full"), drained: () => told.push("drained"), empty: () => told.push("empty") },
    );
    for (const message of ["a", "b", "c", "d"]) queue.put(message);
    assert.deepEqual([told, queue.depth()], [["a", "empty", "full"], 3]);
    while (queue.depth()) await settle();
    assert.deepEqual(told.slice(3), ["b", "c", "d", "drained", "empty"]);
  });

  it("lets timers have their turn while a long line is dispatched", async () => {
    let late = 0;
    queue = createSlicedQueue(100_000, () => (clockMs += 5), IDLE);
    setTimeout(() => (late = queue.depth()), 1);
    for (let n = 0; n < 10_000; n++) queue.put(n);
    while (queue.depth()) await settle();
    assert.ok(late > 0, "the timer came when nothing waited any more");
  });

  it("dispatches nothing more once it is closed", () => {
    const dispatched = [];
    queue = createSlicedQueue(
      100,
      (message) => {
        dispatched.push(message);
        queue.put("b");
        queue.close();
      },
      IDLE,
    );
    queue.put("a");
    assert.deepEqual([dispatched, queue.depth()], [["a"], 0]);
  });
});

describe("Subscriptions", () => {
  let subscriptions;

  beforeEach(() => {
    subscriptions = createSubscriptions();
    wishes.clear();
  });

  const REFUSED = { code: "forbidden", retry: false };
  const LATER = { code: "timeout", retry: true };

  /** Count the next request as sent. */
  const next = () => {
    const subscription = subscriptions.due();
    if (!subscription) return null;
    const [name, body] = subscription.request();
    const { sent } = subscription;
    return { name, ...body, answer: (error) => subscription.answered(error, sent) };
  };
  /** The wishes of the one handler that each pattern has here. */
  const wishes = new Map();
  /** A handler takes the place of the one before. */
  const want = (pattern, wish = {}) => {
    subscriptions.acquire(pattern, wish);
    leave(pattern);
    wishes.set(pattern, wish);
  };
  const leave = (pattern) => {
    if (wishes.has(pattern)) subscriptions.release(pattern, wishes.get(pattern));
    wishes.delete(pattern);
  };
  const stateOf = (pattern) => subscriptions.find(pattern)?.state;

  it("has one request in flight for each pattern, though handlers come and leave meanwhile", () => {
    want("a");
    const first = next();
    assert.deepEqual([first.name, first.pattern], ["subscribe", "a"]);
    leave("a");
    want("a");
    leave("a");
    assert.equal(next(), null);
    first.answer();
    const second = next();
    assert.deepEqual([second.name, second.pattern], ["unsubscribe", "a"]);
    want("a");
    assert.equal(next(), null);
    second.answer();
    assert.equal(next()?.name, "subscribe");
  });

  it("sends nothing for a pattern whose handlers leave and come again while it is active", () => {
    want("a");
    next().answer();
    leave("a");
    assert.equal(stateOf("a"), "changed");
    want("a");
    assert.deepEqual([stateOf("a"), next()], ["active", null]);
  });

  it("unsubscribes a pattern that asked for a past and left before the request was sent", () => {
    want("a");
    next().answer();
    want("a", { since: { last: 3 } });
    leave("a");
    assert.equal(next().name, "unsubscribe");
  });

  it("does not believe that it is subscribed when an unsubscribe has had no answer", () => {
    want("a");
    next().answer();
    leave("a");
    const leaving = next();
    want("a");
    leaving.answer(LATER);
    assert.equal(stateOf("a"), "changed");
    next().answer();
    leave("a");
    next().answer(LATER);
    assert.equal(next().name, "unsubscribe");
  });

  it("asks once more when the token ends a pattern that is being requested, and does not count the first answer", () => {
    want("a");
    next().answer();
    want("a", { overflow: "latest" });
    const first = next();
    assert.equal(subscriptions.end("a", REFUSED), undefined);
    const second = next();
    first.answer();
    assert.equal(stateOf("a"), "requested");
    assert.deepEqual(second.answer(REFUSED), { pattern: "a", error: REFUSED });
    assert.equal(stateOf("a"), "refused");
  });

  it("carries in a CONNECT that resumes only patterns requested on the connection before, without a past", () => {
    want("active");
    next().answer();
    want("past", { since: { last: 5 } });
    next();
    want("refused");
    next().answer(REFUSED);
    want("left");
    next();
    leave("left");
    subscriptions.disconnect();
    want("new");
    assert.deepEqual(subscriptions.wanted().map(({ pattern, state }) => [pattern, state]), [
      ["active", "suspended"], ["past", "suspended"], ["refused", "wanted"], ["new", "wanted"],
    ]);
    assert.deepEqual(subscriptions.connect(true).map(({ pattern }) => pattern), ["active"]);
    subscriptions.welcome([{ pattern: "active", ok: true }]);
    assert.deepEqual([next(), next(), next(), next()].map((each) => each?.pattern), ["past", "refused", "new", undefined]);
  });

  it("asks again for a pattern that the welcome does not mention", () => {
    want("a");
    subscriptions.connect(false);
    assert.deepEqual(subscriptions.welcome([]), []);
    assert.deepEqual([stateOf("a"), next().name], ["wanted", "subscribe"]);
  });

  it("comes into step over random sequences, and the gateway ends with the wanted patterns and policies", () => {
    let state = 7;
    const random = (below) => {
      state = (state * 1103515245 + 12345) % 2147483648;
      return Math.floor((state / 2147483648) * below);
    };
    for (let round = 0; round < 500; round++) {
      subscriptions = createSubscriptions();
      wishes.clear();
      const active = new Map();
      let flying = [];
      const wanted = new Map();
      const apply = ({ name, pattern, overflow = "catch_up" }) => (name === "subscribe" ? active.set(pattern, overflow) : active.delete(pattern));
      /** The oldest of a pattern is answered, or has no answer though the gateway may have taken it. */
      const arrive = (surely) => {
        const [request] = flying.splice(random(flying.length), 1);
        const answered = surely || random(4) > 0;
        if (answered || random(2)) apply(request);
        request.answer(answered ? undefined : LATER);
      };
      const send = () => {
        for (let request = next(); request; request = next()) flying.push(request);
      };
      const reconnect = () => {
        flying = [];
        active.clear();
        subscriptions.disconnect();
        const carried = subscriptions.connect(random(2));
        for (const request of carried) apply({ name: "subscribe", ...request });
        subscriptions.welcome(carried.map(({ pattern }) => ({ pattern, ok: true })));
      };
      for (let step = 0; step < 60; step++) {
        const pattern = "abc"[random(3)];
        const action = random(9);
        if (action < 3) {
          const overflow = ["catch_up", "latest", "drop"][random(3)];
          want(pattern, { overflow, ...(random(4) ? {} : { since: { last: 1 } }) });
          wanted.set(pattern, overflow);
        } else if (action < 5) {
          leave(pattern);
          wanted.delete(pattern);
        } else if (action < 7) send();
        else if (action < 8 && flying.length) arrive(false);
        else if (!random(10)) reconnect();
        assert.equal(new Set(flying.map(({ pattern }) => pattern)).size, flying.length);
      }
      for (send(); flying.length; send()) arrive(true);
      // A subscribe without an answer, and then without handlers, may be left at the gateway until the connection ends.
      for (const [pattern, overflow] of wanted) assert.equal(active.get(pattern), overflow, `round ${round}, ${pattern}`);
      for (const { pattern, state } of subscriptions.wanted()) assert.equal(state, "active", `round ${round}, ${pattern}`);
      assert.equal(subscriptions.due(), undefined);
    }
  });
});

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
    ["a date that is none", { at: new Date("soon") }, "$.at", "a date that is none"],
    ["a Map", { a: new Map([[1, 2]]) }, "$.a", "an object of class Map"],
    ["a Set", new Set([1]), "$", "an object of class Set"],
    ["a typed array", { a: new Uint8Array(2) }, "$.a", "an object of class Uint8Array"],
    ["a buffer", { a: Buffer.from("x") }, "$.a", "an object of class Buffer"],
    ["an ArrayBuffer", { a: new ArrayBuffer(2) }, "$.a", "an object of class ArrayBuffer"],
    ["an error", { a: new Error("x") }, "$.a", "an object of class Error"],
    ["a regular expression", { a: /x/ }, "$.a", "an object of class RegExp"],
    ["a number in an object", { a: Object(7) }, "$.a", "an object of class Number"],
    ["an object of a class", { orders: [new Order()] }, "$.orders[0]", "an object of class Order"],
    ["what a toJSON returns", { a: { toJSON: () => undefined } }, "$.a", "undefined"],
    ["half of a surrogate pair", { a: "x\ud800" }, "$.a", "a text with half of a surrogate pair"],
    ["a name with half of a surrogate pair", { "\udc00": 1 }, '$["\\udc00"]', "a text with half of a surrogate pair"],
    ["an object in itself", loop, "$.list[0].up", "an object in itself"],
    ["more levels than the gateway takes", deep(65), `$${"[0]".repeat(64)}`, "more than 64 objects deep"],
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

describe("tokens", () => {
  const jwt = (claims) => `h.${btoa(JSON.stringify(claims)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}.s`;

  it("are refreshed after most of the rest of their life", () => {
    assert.equal(refreshDelayMs(jwt({ exp: 1100, iat: 1000 }), 1_000_000), 80_000);
    assert.equal(refreshDelayMs(jwt({ exp: 1100, iat: 1000 }), 1_050_000), 40_000);
    assert.equal(refreshDelayMs(jwt({ exp: 1100, sub: "ü?>" }), 1_000_000), 80_000);
  });

  it("are refreshed in time by a clock that is wrong", () => {
    assert.equal(refreshDelayMs(jwt({ exp: 1100, iat: 1000 }), 0), 80_000);
    assert.equal(refreshDelayMs(jwt({ exp: 1100, iat: 1000 }), 9_000_000), 80_000);
    assert.equal(refreshDelayMs(jwt({ exp: 1100 }), 9_000_000), 1000);
    assert.equal(refreshDelayMs(jwt({ exp: 1e12, iat: 0 }), 0), 2 ** 31 - 1);
  });

  it("are left alone when they do not say when they expire", () => {
    for (const token of [undefined, "", "opaque", "a.b.c", jwt({}), jwt({ exp: "soon" }), `h.${btoa("null")}.s`]) {
      assert.ok(!refreshDelayMs(token, 0));
    }
  });
});

describe("byConvention", () => {
  const change = (prefix, topic, data) => byConvention(prefix)({ topic, data });

  it("reads id and verb behind the prefix", () => {
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

describe("PendingEdits", () => {
  it("lets through attributes that are not being saved", () => {
    const edits = new PendingEdits();
    assert.deepEqual(edits.sift({ a: 1 }, "event"), { a: 1 });
    const end = edits.begin({ a: 1 }, { a: 0 });
    assert.deepEqual(edits.sift({ a: 5, b: 6 }, "event"), { b: 6 });
    assert.deepEqual(end(true), { a: 1 });
    assert.deepEqual(end(true), {});
    assert.deepEqual(edits.sift({ a: 7 }, "event"), { a: 7 });
  });
});
