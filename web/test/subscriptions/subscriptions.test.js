/** The subscriptions of a client, each a state machine. */
import assert from "node:assert/strict";
import { beforeEach, describe, it } from "node:test";
import { createSubscriptions } from "../../src/subscriptions/subscriptions.js";

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
