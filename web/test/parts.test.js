/** The pure parts of the client, each alone. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it, mock } from "node:test";
// Private modules, which dist has inside its files and does not export: these tests run on the sources.
import { reconnectDelayMs } from "../src/backoff.js";
import { createBudget } from "../src/budget.js";
import { createConnectionState, TRANSITIONS } from "../src/connection-state.js";
import { createCursor } from "../src/cursor.js";
import { createInbox } from "../src/inbox.js";
import { byConvention, isStale } from "../src/live.js";
import { checkPayload } from "../src/payload.js";
import { PendingEdits } from "../src/pending.js";
import { createSubscriptions } from "../src/subscriptions.js";
import { refreshDelayMs } from "../src/token.js";
import { settle } from "./fake-gateway.js";

/** What the client's monotonic clock says. */
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

describe("the states of a connection", () => {
  /** The shortest way to a state. */
  const wayTo = (goal) => {
    const ways = new Map([["idle", []]]);
    for (const [state, way] of ways) {
      for (const [step, next] of Object.entries(TRANSITIONS[state])) if (!ways.has(next)) ways.set(next, [...way, step]);
    }
    return ways.get(goal);
  };
  const steps = new Set(Object.values(TRANSITIONS).flatMap(Object.keys));

  for (const [name, possible] of Object.entries(TRANSITIONS)) {
    it(`from "${name}" lead to where the table says, and a step that it does not name is refused`, () => {
      for (const step of steps) {
        const state = createConnectionState();
        for (const before of wayTo(name)) state.take(before);
        assert.ok(state.is(name));
        assert.equal(state.can(step), step in possible);
        if (step in possible) assert.deepEqual([state.take(step), state.is(possible[step])], [name, true]);
        else assert.throws(() => state.take(step), new RegExp(`no step "${step}" from "${name}"`));
      }
    });
  }

  it("can be left for good from each, and lost from each that has a connection or an attempt", () => {
    const lacking = (step) => Object.keys(TRANSITIONS).filter((name) => !(step in TRANSITIONS[name]));
    assert.deepEqual(lacking("close"), ["closed"]);
    assert.deepEqual(lacking("lost"), ["idle", "draining", "waiting", "refused", "paused", "closed"]);
  });
});

describe("Budget", () => {
  /** Return what takes a request at a time. */
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
    const take = taker({ inbound_per_s: 10, inbound_burst: 8 });
    assert.deepEqual([1, 2, 3, 4].map(() => take(0)), [0, 0, 0, 0]);
    assert.deepEqual([0, 100, 200, 200].map(take), [200, 100, 0, 200]);
  });

  it("saves up no more than the burst", () => {
    const take = taker({ inbound_per_s: 10, inbound_burst: 4 });
    assert.deepEqual([1, 2, 3].map(() => take(1_000_000)), [0, 0, 200]);
  });
});

describe("Cursor", () => {
  const seen = (cursor, offset, more) => cursor.admit({ id: null, time: 0, offset, ...more })?.("p") ?? false;

  it("resumes from nothing until it has a position", () => {
    const cursor = createCursor();
    assert.equal(cursor.resume(), undefined);
    cursor.advance({ epoch: "e", offset: 0 });
    assert.deepEqual(cursor.resume(), { epoch: "e", offset: 0 });
  });

  it("never moves back within an epoch", () => {
    const cursor = createCursor();
    cursor.advance({ epoch: "e", offset: 5 });
    cursor.advance({ epoch: "e", offset: 3 });
    assert.equal(cursor.resume()?.offset, 5);
    cursor.advance({ epoch: "f", offset: 1 });
    assert.deepEqual(cursor.resume(), { epoch: "f", offset: 1 });
  });

  it("admits what is above it, once", () => {
    const cursor = createCursor();
    cursor.advance({ epoch: "e", offset: 5 });
    assert.deepEqual([5, 6, 6, 8, 7].map((offset) => seen(cursor, offset)), [false, true, false, true, false]);
    assert.equal(seen(cursor, 4, { replayed: true }), false);
  });

  /** Whether the handlers of these patterns see an event that matches all of them. */
  const who = (cursor, offset, more) => {
    const admits = cursor.admit({ id: null, time: 0, offset, ...more });
    return ["p", "q"].filter((pattern) => admits?.(pattern)).join("");
  };
  const replayed = { replayed: true };
  const expected = (cursor) => [...cursor.pasts].map(([pattern, { since }]) => [pattern, since]);

  it("admits the past to the pattern that asked for it, once, until a new event ends it", () => {
    const cursor = createCursor();
    cursor.advance({ epoch: "e", offset: 50 });
    cursor.expect("p", { last: 5 });
    assert.deepEqual([10, 10, 12, 11, 50].map((offset) => who(cursor, offset, replayed)), ["p", "", "p", "", "p"]);
    assert.deepEqual(expected(cursor), [["p", { offset: 50 }]]);
    assert.equal(who(cursor, 51, replayed), "pq");
    assert.deepEqual(expected(cursor), []);
    assert.equal(who(cursor, 49, replayed), "");
    assert.equal(cursor.resume()?.offset, 51);
  });

  it("is not misled by events that were under way before the past began", () => {
    const cursor = createCursor();
    cursor.advance({ epoch: "e", offset: 50 });
    cursor.expect("p", { offset: 40 });
    assert.equal(who(cursor, 51), "pq");
    assert.deepEqual([41, 51, 50].map((offset) => who(cursor, offset, replayed)), ["p", "", "p"]);
    assert.deepEqual(expected(cursor), [["p", { offset: 50 }]]);
  });

  it("stops waiting for a past that does not come", () => {
    const cursor = createCursor();
    cursor.advance({ epoch: "e", offset: 0 });
    cursor.expect("p", { offset: 0 });
    for (let offset = 1; offset <= 1001; offset++) who(cursor, offset);
    assert.deepEqual(expected(cursor), []);
    cursor.expect("p", { offset: 0 });
    cursor.pasts.delete("p");
    assert.equal(who(cursor, 5, replayed), "");
  });

  it("takes anything first after a restart, and then only what is above", () => {
    const cursor = createCursor();
    cursor.announce({ epoch: "e", offset: 9 });
    assert.deepEqual([cursor.resume(), cursor.shown()], [undefined, { epoch: "e", offset: 9 }]);
    cursor.restart();
    assert.deepEqual(cursor.resume(), { epoch: "e", offset: 9 });
    assert.deepEqual([4, 4, 5].map((offset) => seen(cursor, offset)), [true, false, true]);
    assert.deepEqual(cursor.resume(), { epoch: "e", offset: 5 });
  });

  it("keeps where to resume when it is in doubt, and believes the next position, even a lower one", () => {
    const cursor = createCursor();
    cursor.advance({ epoch: "e", offset: 50 });
    cursor.restart();
    assert.deepEqual(cursor.resume(), { epoch: "e", offset: 50 });
    cursor.advance({ epoch: "e", offset: 3 });
    assert.deepEqual(cursor.resume(), { epoch: "e", offset: 3 });
    assert.deepEqual([3, 4].map((offset) => seen(cursor, offset)), [false, true]);
  });
});

describe("Inbox", () => {
  const IDLE = { full: () => {}, empty: () => {} };
  let inbox;

  afterEach(() => inbox.close());

  it("dispatches at once while there is time, and in slices when there is not", async () => {
    clockMs = 0;
    const dispatched = [];
    inbox = createInbox(
      100,
      (message) => {
        dispatched.push(message);
        clockMs += 5;
      },
      { full: () => assert.fail("not full"), empty: () => {} },
    );
    for (let n = 0; n < 7; n++) inbox.put(n);
    assert.deepEqual(dispatched, [0, 1, 2]);
    assert.equal(inbox.depth(), 4);
    while (inbox.depth()) await settle();
    assert.deepEqual(dispatched, [0, 1, 2, 3, 4, 5, 6]);
  });

  it("keeps order when a dispatch brings another message", () => {
    const dispatched = [];
    inbox = createInbox(
      100,
      (message) => {
        dispatched.push(message);
        if (message === "a") inbox.put("c");
      },
      IDLE,
    );
    inbox.put("a");
    inbox.put("b");
    assert.deepEqual(dispatched, ["a", "c", "b"]);
  });

  it("says that it is full, discards nothing, and says when it is empty", async () => {
    const told = [];
    inbox = createInbox(
      2,
      (message) => {
        told.push(message);
        clockMs += 1000;
      },
      { full: () => told.push("full"), empty: () => told.push("empty") },
    );
    for (const message of ["a", "b", "c", "d"]) inbox.put(message);
    assert.deepEqual([told, inbox.depth()], [["a", "empty", "full", "full"], 3]);
    while (inbox.depth()) await settle();
    assert.deepEqual(told.slice(4), ["b", "c", "d", "empty"]);
  });

  it("lets timers have their turn while a long line is dispatched", async () => {
    let late = 0;
    inbox = createInbox(100_000, () => (clockMs += 5), { full: () => {}, empty: () => {} });
    setTimeout(() => (late = inbox.depth()), 1);
    for (let n = 0; n < 10_000; n++) inbox.put(n);
    while (inbox.depth()) await settle();
    assert.ok(late > 0, "the timer came when nothing waited any more");
  });

  it("dispatches nothing more once it is closed", () => {
    const dispatched = [];
    inbox = createInbox(
      100,
      (message) => {
        dispatched.push(message);
        inbox.put("b");
        inbox.close();
      },
      IDLE,
    );
    inbox.put("a");
    assert.deepEqual([dispatched, inbox.depth()], [["a"], 0]);
  });
});

describe("Subscriptions", () => {
  /** Count the next request as sent. */
  const next = (subscriptions) => {
    const record = subscriptions.outOfStep();
    if (!record) return null;
    const [name, { pattern }] = subscriptions.request(record);
    return { name, pattern };
  };

  it("has one request in flight for each pattern, whatever changes meanwhile", () => {
    const subscriptions = createSubscriptions();
    subscriptions.want("a", [{}]);
    assert.deepEqual(next(subscriptions), { name: "subscribe", pattern: "a" });
    subscriptions.want("a", []);
    subscriptions.want("a", [{}]);
    subscriptions.want("a", []);
    assert.equal(next(subscriptions), null);
    subscriptions.settled("a");
    assert.deepEqual(next(subscriptions), { name: "unsubscribe", pattern: "a" });
    subscriptions.want("a", [{}]);
    assert.equal(next(subscriptions), null);
    subscriptions.settled("a");
    assert.equal(next(subscriptions)?.name, "subscribe");
  });

  it("comes into step over random sequences, and the gateway ends with what is wanted", () => {
    let state = 7;
    const random = (below) => {
      state = (state * 1103515245 + 12345) % 2147483648;
      return Math.floor((state / 2147483648) * below);
    };
    for (let round = 0; round < 200; round++) {
      const subscriptions = createSubscriptions();
      const inForce = new Set();
      const flying = [];
      const wanted = new Set();
      const arrive = () => {
        const [request] = flying.splice(random(flying.length), 1);
        if (request.name === "subscribe") inForce.add(request.pattern);
        else inForce.delete(request.pattern);
        subscriptions.settled(request.pattern);
      };
      const send = () => {
        for (let request = next(subscriptions); request; request = next(subscriptions)) flying.push(request);
      };
      for (let step = 0; step < 60; step++) {
        const pattern = "abc"[random(3)];
        const action = random(8);
        if (action < 3) {
          subscriptions.want(pattern, [{}]);
          wanted.add(pattern);
        } else if (action < 5) {
          subscriptions.want(pattern, []);
          wanted.delete(pattern);
        } else if (action < 7) send();
        else if (flying.length) arrive();
        assert.equal(new Set(flying.map(({ pattern }) => pattern)).size, flying.length);
      }
      for (send(); flying.length; send()) arrive();
      assert.deepEqual([...inForce].sort(), [...wanted].sort(), `round ${round}`);
      assert.equal(subscriptions.outOfStep(), undefined);
    }
  });
});

describe("checkPayload", () => {
  it("returns what JSON makes of it, up to the limit and not a byte beyond", () => {
    assert.deepEqual(checkPayload({ at: new Date(0), gone: undefined, bytes: new Uint8Array(2) }, 100), {
      at: "1970-01-01T00:00:00.000Z", bytes: { 0: 0, 1: 0 },
    });
    for (const [data, size] of [["", 2], ["é", 4], ["\ud800", 8], [null, 4], [[1, 2], 5]]) {
      checkPayload(data, size);
      assert.throws(() => checkPayload(data, size - 1), { code: "payload_too_large", parts: { size, limit: size - 1, where: "browser" } });
    }
  });
});

describe("tokens", () => {
  const jwt = (claims) => `h.${btoa(JSON.stringify(claims)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}.s`;

  it("are refreshed after most of what is left of their life", () => {
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
  it("lets through what is not being saved", () => {
    const edits = new PendingEdits();
    assert.deepEqual(edits.sift({ a: 1 }, "event"), { a: 1 });
    const end = edits.begin({ a: 1 }, { a: 0 });
    assert.deepEqual(edits.sift({ a: 5, b: 6 }, "event"), { b: 6 });
    assert.deepEqual(end(true), { a: 1 });
    assert.deepEqual(end(true), {});
    assert.deepEqual(edits.sift({ a: 7 }, "event"), { a: 7 });
  });
});
