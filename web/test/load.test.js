/** `load`: its fetches, resets and applied events, and the effect of a failed fetch. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it, mock } from "node:test";
import { connect, load } from "#headgate";
import { FakeGateway, settle } from "./fake-gateway.js";

const TRIMMED = { patterns: ["orders.#"], from: 101, to: 104, count: 4, bytes: 9, reason: "trimmed", recoverable: false };

/** @type {FakeGateway} */
let gateway;
let gate;
/** Fetches of the page that wait for an answer: {resolve, reject, signal}. */
let fetches;
/** The notices to the page: `reset 1`, `apply 2`. */
let calls;
let statuses;

beforeEach(() => {
  mock.timers.enable({ apis: ["setTimeout"] });
  gateway = new FakeGateway();
  gate = connect("http://gateway.test", { io: gateway.io, reconnectDelayMinMs: 1, reconnectDelayMaxMs: 2 });
  [fetches, calls, statuses] = [[], [], []];
});

afterEach(() => {
  gate.close();
  mock.timers.reset();
  mock.restoreAll();
});

const fetch = ({ signal }) => new Promise((resolve, reject) => fetches.push({ resolve, reject, signal }));
const options = {
  reset: (answer) => calls.push(`reset ${answer?.n ?? answer}`),
  apply: (data) => calls.push(`apply ${data}`),
  changed: ({ status }) => statuses.push(status),
  resyncSpreadMs: 0,
};
const begin = (more, fetching = fetch) => load(gate, "orders.#", fetching, { ...options, ...more });

async function answer(nth, value) {
  fetches[nth].resolve(value);
  await settle();
}

/** Let a client with an acknowledged subscription in. */
async function letIn(more) {
  await gateway.letIn(more);
}

/** Begin a load of a client that is let in. */
async function begun(...given) {
  const list = begin(...given);
  await letIn();
  return list;
}

async function pass(ms) {
  mock.timers.tick(ms);
  await settle();
}

describe("a load", () => {
  it("fetches again when the next connection is of another user, whose topics are others", async () => {
    const list = load(gate, "users.me.#", fetch, options);
    await letIn({ own: "users.ann." });
    await gateway.answer("subscribe");
    await settle();
    await answer(0, 1);
    assert.equal(list.status, "current");
    gateway.cut();
    await pass(2);
    await gateway.letIn({ user: "ben", own: "users.ben." }, 2);
    assert.equal(list.status, "behind");
    await gateway.answer("subscribe");
    await settle();
    await pass(0);
    await answer(1, 2);
    assert.deepEqual([calls, list.status], [["reset 1", "reset 2"], "current"]);
  });

  it("fetches when the subscription is active, and applies after the answer what came before it, in order", async () => {
    const list = begin();
    await settle();
    assert.equal(fetches.length, 0);
    await letIn();
    assert.deepEqual([fetches.length, list.status, list.pattern], [1, "loading", "orders.#"]);
    gateway.event("orders.1", 1, 101);
    gateway.event("orders.2", 2, 102);
    assert.deepEqual(calls, []);
    await answer(0, 7);
    gateway.event("orders.3", 3, 103);
    assert.deepEqual(calls, ["reset 7", "apply 1", "apply 2", "apply 3"]);
    assert.deepEqual([list.status, list.error, statuses], ["current", null, ["current"]]);
  });

  it("fetches again after a loss, one fetch at a time, and meanwhile shows what comes", async () => {
    const list = await begun();
    gateway.emit("gap", TRIMMED);
    await pass(1);
    assert.equal(fetches.length, 1);
    await answer(0, 7);
    assert.deepEqual([fetches.length, list.status], [2, "behind"]);
    gateway.event("orders.5", 5, 105);
    await answer(1, 8);
    assert.deepEqual(calls, ["reset 7", "apply 5", "reset 8", "apply 5"]);
    assert.equal(list.status, "current");
    gateway.emit("gap", { ...TRIMMED, patterns: ["stock.#"] });
    await pass(1);
    assert.equal(fetches.length, 2, "the loss of another pattern is not its own");
  });

  it("fetches again when the log has lost its end, though events of the same offsets come", async () => {
    await begun();
    gateway.event("orders.1", 1, 101);
    await answer(0, 7);
    gateway.emit("gap", { patterns: [], from: 101, to: 101, count: 1, bytes: null, reason: "rolled_back", recoverable: false, epoch: "e2" });
    gateway.event("orders.1", "other", 101);
    await pass(1);
    await answer(1, 8);
    assert.deepEqual(calls.slice(2), ["apply other", "reset 8", "apply other"]);
  });

  it("leaves out what the answer has, where it names its position", async () => {
    await begun();
    for (const n of [101, 102, 103]) gateway.event("orders.1", n, n);
    await answer(0, { n: 7, position: { epoch: "e1", offset: 102 } });
    assert.deepEqual(calls, ["reset 7", "apply 103"]);
  });

  it("leaves out nothing by a position of another epoch", async () => {
    await begun();
    gateway.event("orders.1", 101, 101);
    await answer(0, { n: 7, position: { epoch: "e9", offset: 102 } });
    assert.deepEqual(calls, ["reset 7", "apply 101"]);
  });

  it("fetches nothing where the page came with its state, until something is lost", async () => {
    const list = await begun({ since: { epoch: "e1", offset: 98 } });
    assert.deepEqual(gateway.connects[0].subscriptions, [{ pattern: "orders.#", since: { epoch: "e1", offset: 98 } }]);
    gateway.event("orders.1", 99, 99, { replayed: true });
    assert.deepEqual([calls, fetches.length, list.status], [["apply 99"], 0, "current"]);
    gateway.emit("gap", TRIMMED);
    await pass(1);
    assert.equal(fetches.length, 1);
  });

  it("does not go back to an answer from before a loss, once it shows a later event", async () => {
    const list = await begun();
    await answer(0, 1);
    gateway.emit("gap", TRIMMED);
    await pass(1);
    gateway.event("orders.1", 105, 105);
    gateway.emit("gap", { ...TRIMMED, from: 106, to: 107 });
    await answer(1, 2);
    assert.deepEqual([calls, list.status], [["reset 1", "apply 105"], "behind"]);
    await pass(1);
    await answer(2, 3);
    assert.deepEqual([calls, list.status], [["reset 1", "apply 105", "reset 3"], "current"]);
  });

  it("fetches a state that came with the page of another epoch", async () => {
    const list = await begun({ since: { epoch: "e0", offset: 98 } });
    assert.deepEqual([fetches.length, list.status], [1, "behind"]);
  });

  it("shows something while there is no connection, and completes it from the log where it names its position", async () => {
    const list = begin();
    await settle();
    gateway.fail();
    list.reload();
    assert.equal(fetches.length, 1);
    await answer(0, { n: 7, position: { epoch: "e1", offset: 98 } });
    assert.deepEqual([calls, list.status], [["reset 7"], "behind"]);
    await pass(5);
    await gateway.until(() => gateway.connects.length === 2);
    await gateway.letIn({}, 2);
    assert.deepEqual(gateway.connects[1].subscriptions, [{ pattern: "orders.#", since: { epoch: "e1", offset: 98 } }]);
    assert.deepEqual([fetches.length, list.status], [1, "current"]);
  });

  it("fetches again with the acknowledgement what it fetched before, without a position", async () => {
    const list = begin();
    list.reload();
    await answer(0, 7);
    await letIn();
    await answer(1, 8);
    assert.deepEqual([calls, list.status], [["reset 7", "reset 8"], "current"]);
  });

  it("is not changed by what the application reads again", async () => {
    await begun();
    await answer(0, 7);
    gateway.event("orders.1", "new", 101);
    const done = gate.replay("orders.#", { from: 99, to: 99 });
    await gateway.answer("replay", { ok: true, events: [["orders.1", "old", { id: "i", time: 1, offset: 99, replayed: true }]], next: null });
    assert.equal(await done, 1);
    assert.deepEqual(calls, ["reset 7", "apply new"]);
  });

  it("applies what the page has published without an echo after an answer that may be older, and not before", async () => {
    await begun();
    await answer(0, 7);
    const published = gate.publish("orders.1", "own", { echo: false, id: "mine" });
    gateway.event("orders.1", "own", 101, { id: "mine" });
    await gateway.answer("publish", { ok: true, epoch: "e1", offset: 101 });
    await published;
    assert.deepEqual(calls, ["reset 7"]);
    gateway.emit("gap", TRIMMED);
    await pass(1);
    gateway.event("orders.1", "own too", 105, { id: "mine" });
    assert.deepEqual(calls, ["reset 7"]);
    await answer(1, 8);
    assert.deepEqual(calls, ["reset 7", "reset 8", "apply own too"]);
  });

  it("takes events without a place in the log", async () => {
    await begun();
    gateway.emit("event", "orders.1", "early", { id: "i", time: 1 });
    await answer(0, 7);
    gateway.emit("event", "orders.1", "late", { id: "i", time: 1 });
    assert.deepEqual(calls, ["reset 7", "apply early", "apply late"]);
  });

  it("holds at most 10,000 events for an answer, and fetches once more when there were more", async () => {
    await begun();
    for (let n = 1; n <= 10_001; n++) gateway.event("orders.1", n, 100 + n);
    await answer(0, 7);
    await pass(1);
    assert.deepEqual([calls, fetches.length], [["reset 7"], 2]);
  });
});

describe("a load that fails", () => {
  const ways = {
    "rejects": () => Promise.reject(new Error("503")),
    "throws at once": () => {
      throw new Error("503");
    },
  };
  for (const [way, failing] of Object.entries(ways)) {
    it(`is reported and repeated, later and later, when the fetch ${way}`, async () => {
      const errors = [];
      gate.on("delivery:error", ({ error, pattern }) => errors.push([error.message, pattern]));
      mock.method(Math, "random", () => 0.5);
      const delays = [];
      let nth = 0;
      const list = await begun({}, (how) => (++nth < 4 ? failing() : fetch(how)));
      for (let at = 0; fetches.length === 0; at++) {
        const was = nth;
        await pass(1);
        if (nth > was) delays.push(at);
      }
      assert.equal(list.status, "failed");
      assert.deepEqual(errors, Array(3).fill(["503", "orders.#"]));
      assert.equal(delays.length, 3);
      assert.ok(delays[0] >= 500 && delays[1] - delays[0] > delays[0], String(delays));
      await answer(0, 7);
      assert.deepEqual([list.status, list.error, calls, statuses], ["current", null, ["reset 7"], ["failed", "failed", "failed", "current"]]);
    });
  }

  it("gives up a fetch that hangs, by its signal, and takes no late answer of it", async () => {
    const list = await begun({ timeoutMs: 50 });
    await pass(50);
    assert.match(list.error.message, /The fetch of load\("orders.#"\) has not settled in 50 ms\. It was aborted/);
    assert.deepEqual([list.status, list.error.code, list.error.parts, fetches[0].signal.aborted], ["failed", "timeout", { pattern: "orders.#", where: "fetch", timeoutMs: 50 }, true]);
    await pass(2000);
    await answer(0, "late");
    await answer(1, 8);
    assert.deepEqual(calls, ["reset 8"]);
  });

  it("takes the first of two answers, and a value that is no promise", async () => {
    await begun();
    fetches[0].resolve(1);
    await answer(0, 2);
    begin({}, () => 3);
    await settle();
    assert.deepEqual(calls, ["reset 1", "reset 3"]);
  });

  it("is repeated when reset throws, and continues with the next event when apply does", async () => {
    const reported = mock.method(console, "error", () => {});
    let isBad = true;
    const list = begin({
      reset(answer) {
        if (isBad) throw new Error("of reset");
        options.reset(answer);
      },
      apply(data) {
        if (data === 1) throw new Error("of apply");
        options.apply(data);
      },
    });
    await letIn();
    await answer(0, 7);
    assert.equal(list.error.message, "of reset");
    isBad = false;
    await pass(2000);
    gateway.event("orders.1", 1, 101);
    gateway.event("orders.1", 2, 102);
    await answer(1, 8);
    assert.deepEqual([calls, list.status], [["reset 8", "apply 2"], "current"]);
    assert.deepEqual(reported.mock.calls.map(({ arguments: [error] }) => error.message), ["of apply"]);
  });

  it("is reported in the console if it has no handler", async () => {
    const reported = mock.method(console, "error", () => {});
    await begun({ changed: undefined }, () => Promise.reject(new Error("503")));
    assert.equal(reported.mock.calls[0].arguments[0].message, "503");
  });

  it("shows what the server has, and why it does not follow, where the gateway refuses the pattern", async () => {
    const list = begin();
    gate.on("delivery:error", () => {});
    await letIn({ subscriptions: [{ pattern: "orders.#", ok: false, error: { code: "forbidden", message: "no", retry: false } }] });
    await answer(0, 7);
    assert.deepEqual([calls, list.status, list.error.code], [["reset 7"], "failed", "forbidden"]);
  });

  it("is behind while the gateway has ended its pattern for a passing reason, and fetches again after that", async () => {
    const list = begin();
    await letIn();
    await answer(0, 7);
    assert.equal(list.status, "current");
    gateway.emit("status", { ended: [{ pattern: "orders.#", error: { code: "authorize_failed", message: "no", retry: true } }] });
    await settle();
    assert.equal(list.status, "behind");
    await pass(2000);
    assert.equal((await gateway.answer("subscribe")).pattern, "orders.#");
    await settle();
    await answer(1, 8);
    assert.deepEqual([list.status, calls], ["current", ["reset 7", "reset 8"]]);
  });
});

describe("a load that has ended", () => {
  const ends = {
    "was closed": (list) => list.close(),
    "was aborted": (_list, leaving) => leaving.abort(),
    "has lost its gate": () => gate.close(),
  };
  for (const [how, end] of Object.entries(ends)) {
    it(`takes no answer and leaves no handler when it ${how}`, async () => {
      const leaving = new AbortController();
      const list = await begun({ signal: leaving.signal });
      end(list, leaving);
      assert.deepEqual([list.status, fetches[0].signal.aborted, statuses.at(-1)], ["closed", true, "closed"]);
      await answer(0, 7);
      list.reload();
      await pass(60_000);
      assert.deepEqual([calls, fetches.length], [[], 1]);
    });
  }

  it("applies nothing more when it is closed in apply", async () => {
    const load = await begun({ apply: (data) => calls.push(data) && load.close() });
    for (const offset of [101, 102]) gateway.event("orders.1", offset, offset);
    await answer(0, []);
    assert.deepEqual(calls, ["reset ", 101]);
  });

  it("subscribes to nothing more when it is closed in reset", async () => {
    const first = begin({ reset: () => first.close() });
    first.reload();
    await answer(0, { position: { epoch: "e1", offset: 100 } });
    assert.deepEqual([first.status, gate.state.subscriptions], ["closed", {}]);
  });

  it("is closed at the end of a block with `using`", async () => {
    const list = begin();
    await gateway.welcome();
    list[Symbol.dispose ?? Symbol.for("Symbol.dispose")]();
    assert.equal(list.status, "closed");
  });

  it("never begins where its signal was aborted before", async () => {
    const list = await begun({ signal: AbortSignal.abort() });
    assert.deepEqual([list.status, gateway.connects[0].subscriptions, fetches.length], ["closed", [], 0]);
  });
});
