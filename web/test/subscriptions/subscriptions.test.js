/** The subscriptions of a client, each a state machine. */
import assert from "node:assert/strict";
import { beforeEach, describe, it } from "node:test";
import { belowFrom } from "../chance.js";
import { createSubscriptions } from "../../src/subscriptions/subscriptions.js";

describe("Subscriptions", () => {
  let subscriptions;

  beforeEach(() => {
    subscriptions = createSubscriptions();
    wishes.clear();
    reported = [];
  });

  const REFUSED = { code: "forbidden", retry: false };
  const LATER = { code: "timeout", retry: true };

  /** Count the next request as sent. */
  const next = () => {
    const subscription = subscriptions.due((refusal) => refusal && reported.push(refusal));
    if (!subscription) return null;
    const [name, body] = subscription.request();
    const { sent } = subscription;
    return { name, ...body, answer: (error) => subscription.answered(error, sent) };
  };
  /** Refusals that are reported to the application without asking the gateway. */
  let reported = [];
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
  /** The pauses are over. */
  const retryAll = () => {
    for (const each of [...subscriptions.retrying]) each.take("retry");
  };

  it("sends nothing for a pattern whose handlers leave and come again while it is active", () => {
    want("a");
    next().answer();
    leave("a");
    assert.equal(stateOf("a"), "changed");
    want("a");
    assert.deepEqual([stateOf("a"), next()], ["active", null]);
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
    assert.deepEqual([stateOf("a"), next()], ["retrying", null]);
    retryAll();
    assert.equal(next().name, "subscribe");
  });

  it("delays no other pattern after a refusal for a passing reason, reports nothing, and counts how often until it is active", () => {
    want("a");
    want("b");
    const [first, second] = [next(), next()];
    assert.equal(first.answer(LATER), undefined);
    second.answer();
    assert.deepEqual([stateOf("a"), stateOf("b"), next()], ["retrying", "active", null]);
    retryAll();
    next().answer(LATER);
    assert.equal(subscriptions.find("a").failures, 2);
    retryAll();
    next().answer();
    assert.deepEqual([stateOf("a"), subscriptions.find("a").failures], ["active", 0]);
  });

  describe("at the gateway's limits", () => {
    const FULL = (name) => ({ code: "limit_reached", retry: false, parts: { name } });
    const patterns = (count) => Array.from({ length: count }, (_, n) => `a.${n}`);
    const states = () => subscriptions.wanted().map(({ state }) => state);
    const sendAll = () => {
      const sent = [];
      for (let request = next(); request; request = next()) sent.push(request);
      return sent;
    };

    it("asks for no more patterns than it may have, and says once of each other one which limit it waits for", () => {
      subscriptions.limit({ maxSubscriptions: 3, maxWildcards: 1 });
      for (const pattern of ["a.*", "b.*", "a", "b", "c"]) want(pattern);
      assert.deepEqual(sendAll().map(({ pattern }) => pattern), ["a.*", "a", "b"]);
      assert.deepEqual(reported.map(({ pattern, error: { code, parts } }) => [pattern, code, parts]), [
        ["b.*", "limit_reached", { name: "wildcards", limit: 1 }], ["c", "limit_reached", { name: "subscriptions", limit: 3 }],
      ]);
      assert.deepEqual([stateOf("b.*"), stateOf("c")], ["waiting", "waiting"]);
      assert.deepEqual([sendAll(), reported.length], [[], 2]);
    });

    it("asks for those that wait, in their order, as places become free", () => {
      subscriptions.limit({ maxSubscriptions: 5 });
      for (const pattern of patterns(8)) want(pattern);
      for (const { answer } of sendAll()) answer();
      for (const pattern of patterns(4)) leave(pattern);
      // Each of them has its place until the gateway has answered.
      const leaving = sendAll();
      assert.deepEqual(leaving.map(({ name }) => name), Array(4).fill("unsubscribe"));
      leaving[0].answer();
      assert.deepEqual(sendAll().map(({ pattern }) => pattern), ["a.5"]);
      for (const { answer } of leaving.slice(1)) answer();
      for (const { answer } of sendAll()) answer();
      assert.deepEqual([stateOf("a.6"), stateOf("a.7"), reported.length], ["active", "active", 3]);
    });

    it("asks for the next that waits when the one before it ends before its request", () => {
      subscriptions.limit({ maxSubscriptions: 1 });
      for (const pattern of patterns(3)) want(pattern);
      for (const { answer } of sendAll()) answer();
      leave("a.0");
      for (const { answer } of sendAll().slice(0, 1)) answer();
      leave("a.1");
      assert.deepEqual(sendAll().map(({ pattern }) => pattern), ["a.2"]);
    });

    it("says nothing of a limit when patterns take the places of others in one task", () => {
      subscriptions.limit({ maxSubscriptions: 3, maxWildcards: 1 });
      const [one, other] = [["a", "b", "c.*"], ["d", "e", "f.*"]];
      for (const pattern of one) want(pattern);
      for (const { answer } of sendAll()) answer();
      for (const pattern of one) leave(pattern);
      for (const pattern of other) want(pattern);
      want("g");
      for (const { name, answer } of sendAll()) {
        assert.equal(name, "unsubscribe");
        answer();
      }
      for (const { answer } of sendAll()) answer();
      assert.deepEqual([...other, "g"].map(stateOf), ["active", "active", "active", "waiting"]);
      assert.deepEqual(reported.map(({ pattern }) => pattern), ["g"]);
    });

    it("carries in a CONNECT what the limits allow, and the first CONNECT what a gateway answers", () => {
      for (const pattern of patterns(1500)) want(pattern);
      assert.equal(subscriptions.connect(false).length, 1024);
      subscriptions.disconnect();
      subscriptions.limit({ maxSubscriptions: 128 });
      assert.deepEqual(subscriptions.connect(false).map(({ pattern }) => pattern), patterns(128));
    });

    it("waits with what the first CONNECT asked for beyond the limits, and asks again where others were forbidden", () => {
      for (const pattern of patterns(6)) want(pattern);
      const sent = subscriptions.connect(false);
      subscriptions.limit({ maxSubscriptions: 4 });
      const results = sent.map(({ pattern }, n) => ({ pattern, ok: n > 0 && n < 4, error: n ? (n < 4 ? undefined : { code: "limit_reached", name: "subscriptions", limit: 4 }) : { code: "forbidden" } }));
      const refusals = subscriptions.welcome(results);
      assert.deepEqual(refusals.map((each) => each?.error.code), ["forbidden", undefined, undefined, undefined, "limit_reached", "limit_reached"]);
      assert.deepEqual(sendAll().map(({ pattern }) => pattern), ["a.4"]);
      assert.deepEqual([stateOf("a.5"), reported], ["waiting", []]);
    });

    it("does not ask in a loop where the gateway has less room than it says", () => {
      subscriptions.limit({ maxSubscriptions: 9 });
      for (const pattern of patterns(3)) want(pattern);
      const [first, second, third] = sendAll();
      first.answer();
      second.answer(FULL("subscriptions"));
      third.answer(FULL("subscriptions"));
      assert.deepEqual([sendAll(), states()], [[], ["active", "waiting", "waiting"]]);
      leave("a.0");
      for (const { answer } of sendAll()) answer();
      assert.equal(sendAll().length, 1);
    });
  });

  it("never holds more than its limits over random sequences, and has all places taken in the end", () => {
    const random = belowFrom(11);
    const names = ["a", "b", "c", "d.*", "e.#", "f.*"];
    for (let round = 0; round < 500; round++) {
      subscriptions = createSubscriptions();
      wishes.clear();
      const limits = { maxSubscriptions: 1 + random(5), maxWildcards: random(3) };
      const isWild = (pattern) => pattern.includes(".");
      const wild = () => [...active].filter(isWild).length;
      const active = new Set();
      const wanted = new Set();
      let flying = [];
      subscriptions.limit(limits);
      const arrive = () => {
        const [request] = flying.splice(random(flying.length), 1);
        if (request.name === "unsubscribe") active.delete(request.pattern);
        else active.add(request.pattern);
        assert.ok(active.size <= limits.maxSubscriptions && wild() <= limits.maxWildcards, `round ${round}: ${[...active]}`);
        request.answer();
      };
      const send = () => {
        for (let request = next(); request; request = next()) flying.push(request);
      };
      for (let step = 0; step < 60; step++) {
        const pattern = names[random(names.length)];
        const action = random(8);
        if (action < 3) {
          want(pattern);
          wanted.add(pattern);
        } else if (action < 5) {
          leave(pattern);
          wanted.delete(pattern);
        } else if (action < 6) send();
        else if (action < 7 && flying.length) arrive();
        else if (!random(10)) {
          flying = [];
          active.clear();
          subscriptions.disconnect();
          const carried = subscriptions.connect(random(2));
          for (const { pattern: each } of carried) active.add(each);
          assert.ok(active.size <= limits.maxSubscriptions && wild() <= limits.maxWildcards, `round ${round}: ${[...active]}`);
          subscriptions.welcome(carried.map(({ pattern: each }) => ({ pattern: each, ok: true })));
        }
      }
      for (send(); flying.length; send()) arrive();
      const left = [...wanted].filter((each) => !active.has(each));
      for (const each of active) assert.ok(wanted.has(each), `round ${round}: ${each}`);
      const isFull = (each) => active.size === limits.maxSubscriptions || (isWild(each) && wild() === limits.maxWildcards);
      for (const each of left) assert.ok(stateOf(each) === "waiting" && isFull(each), `round ${round}: ${each} is ${stateOf(each)}`);
    }
  });

  it("comes into step over random sequences, and the gateway ends with the wanted patterns and policies", () => {
    const random = belowFrom(7);
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
        else if (random(2)) retryAll();
        else if (!random(10)) reconnect();
        assert.equal(new Set(flying.map(({ pattern }) => pattern)).size, flying.length);
      }
      const retryAndSend = () => {
        retryAll();
        send();
      };
      for (retryAndSend(); flying.length; retryAndSend()) arrive(true);
      // A subscribe without an answer, and then without handlers, may be left at the gateway until the connection ends.
      for (const [pattern, overflow] of wanted) assert.equal(active.get(pattern), overflow, `round ${round}, ${pattern}`);
      for (const { pattern, state } of subscriptions.wanted()) assert.equal(state, "active", `round ${round}, ${pattern}`);
      assert.equal(next(), null);
    }
  });
});
