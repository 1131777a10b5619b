import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { readFile } from "node:fs/promises";
import { afterEach, beforeEach, describe, it, mock } from "node:test";
import { connect, events, HeadgateError } from "#headgate";
import { LIFECYCLE } from "../src/language/development.js";
import { FakeGateway, settle } from "./fake-gateway.js";

const OPTIONS = { reconnectDelayMinMs: 1, reconnectDelayMaxMs: 2 };

/** @type {FakeGateway} */
let gateway;
let gate;

function open(options = {}) {
  gate = connect("http://gateway.test", { ...OPTIONS, io: gateway.io, ...options });
  return gate;
}

/** The calls of the handlers that `record` has made, as [label, data, offset]. */
let calls;
const record = (label) => (data, event) => calls.push([label, data, event?.offset]);

/** Open a gate, and let it in. */
async function up(options) {
  open(options);
  await gateway.welcome();
}

/** Refresh the token, and return the one that is sent. */
async function refresh(...given) {
  const refreshed = gate.refresh(...given);
  const { token } = await gateway.answer("refresh");
  await refreshed;
  return token;
}

/** Break the connection, and return what the next CONNECT carries. */
async function reconnect() {
  const before = gateway.connects.length;
  gateway.cut();
  await gateway.until(() => gateway.connects.length > before, "another CONNECT");
  return gateway.connects.at(-1);
}

/** Watch the timers that the client starts. */
function countTimers() {
  const { setTimeout: start, clearTimeout: clear } = globalThis;
  const timers = { started: 0, pending: new Set() };
  mock.method(globalThis, "setTimeout", (callback, delayMs, ...args) => {
    if (!/\/web\/(src|dist)\//.test(new Error().stack)) return start(callback, delayMs, ...args);
    const timer = start(() => timers.pending.delete(timer) && callback(...args), delayMs);
    timers.started++;
    timers.pending.add(timer);
    return timer;
  });
  mock.method(globalThis, "clearTimeout", (timer) => {
    timers.pending.delete(timer);
    clear(timer);
  });
  return timers;
}

/** The same, with a handler of `a`. */
async function wanting(handler = () => {}) {
  open().on("a", handler);
  await gateway.welcome();
}

beforeEach(() => {
  gateway = new FakeGateway();
  calls = [];
});

afterEach(() => {
  gate?.close();
  mock.restoreAll();
});

describe("the gateway's limits", () => {
  const LIMITS = { max_payload_bytes: 1000, inbound_per_s: 1000, inbound_burst: 1000, max_subscriptions: 128, max_wildcards: 32 };
  const refused = (name, limit) => ({ ok: false, error: { code: "limit_reached", message: "limit reached", retry: false, name, limit } });
  const topics = (count, from = 0) => Array.from({ length: count }, (_, n) => `a.${from + n}`);
  const count = (state) => Object.values(gate.state.subscriptions).filter((each) => each === state).length;

  it("serve what they allow of 160 patterns, and the rest as soon as others are given up", async () => {
    const reports = [];
    open().on("delivery:error", ({ pattern, error }) => reports.push([pattern, error.code, error.parts.limit]));
    const handler = () => {};
    for (const topic of topics(160)) gate.on(topic, handler);
    const ready = gate.subscribed("a.159");
    const refusal = assert.rejects(ready, { code: "limit_reached" });
    await gateway.until(() => gateway.connects.length === 1);
    const subscriptions = gateway.connects[0].subscriptions.map(({ pattern }, n) => ({ pattern, ...(n < 128 ? { ok: true } : refused("subscriptions", 128)) }));
    await gateway.welcome({ limits: LIMITS, subscriptions });
    await refusal;
    assert.deepEqual([gate.status, count("active"), count("waiting"), reports.length, gateway.requests.length], ["live", 128, 32, 32, 0]);
    gate.off("a.0", handler);
    await gateway.answer("unsubscribe");
    assert.deepEqual(await gateway.answer("subscribe"), { pattern: "a.128" });
    await gate.subscribed("a.128");
    assert.deepEqual([count("active"), count("waiting"), reports.length], [128, 31, 32]);
  });

  it("bound what a client asks for after a break in which it got more handlers", async () => {
    open().on("delivery:error", () => {});
    for (const topic of topics(120)) gate.on(topic, () => {});
    await gateway.welcome({ limits: LIMITS });
    gateway.cut();
    for (const topic of topics(20, 120)) gate.on(topic, () => {});
    await gateway.welcome({ limits: LIMITS }, 2);
    assert.equal(gateway.connects[1].subscriptions.length, 120);
    for (let n = 0; n < 8; n++) await gateway.answer("subscribe");
    await settle();
    assert.deepEqual([gate.status, count("active"), count("waiting"), gateway.requests.length], ["live", 128, 12, 0]);
  });

  it("do not end a loop whose pattern waits: it gets its events when there is a place", async () => {
    open().on("delivery:error", () => {});
    const handler = () => {};
    gate.on("a.0", handler);
    await gateway.welcome({ limits: { ...LIMITS, max_subscriptions: 1 } });
    const next = events(gate, "a.1").next();
    await settle();
    assert.equal(gate.state.subscriptions["a.1"], "waiting");
    gate.off("a.0", handler);
    await gateway.answer("unsubscribe");
    await gateway.answer("subscribe", { ok: true, offset: 100 });
    gateway.event("a.1", { n: 1 }, 101);
    assert.deepEqual((await next).value.data, { n: 1 });
  });
});

describe("the user's own topics, by users.me", () => {
  const own = "users.ana__40example__2eorg.";

  it("subscribes by the user's word, which the welcome brings, and gives the topic by the name that was asked for", async () => {
    const had = [];
    const note = (label) => (data, event) => had.push([label, event.topic, event.pattern, data]);
    open().on("users.me.#", note("mine"));
    gate.on(`${own}mail`, note("by name"));
    gate.once("users.me.mail", note("once"));
    gate.on("users.*.mail", note("any"));
    assert.equal(gate.state.subscriptions["users.me.#"], undefined);
    await gateway.welcome({ own });
    assert.deepEqual(gateway.connects[0].subscriptions, [{ pattern: `${own}mail` }, { pattern: "users.*.mail" }]);
    assert.deepEqual(await gateway.answer("subscribe"), { pattern: `${own}#` });
    await gate.subscribed("users.me.#");
    assert.equal(gate.state.subscriptions["users.me.#"], "active");
    gateway.event(`${own}mail`, 1, 101);
    gateway.event(`${own}mail`, 2, 102);
    gateway.event("users.me.mail", 3, 103);
    gateway.event("users.ben.mail", 4, 104);
    await settle();
    assert.deepEqual(had, [
      ["mine", "users.me.mail", "users.me.#", 1],
      ["by name", `${own}mail`, `${own}mail`, 1],
      ["once", "users.me.mail", "users.me.mail", 1],
      ["any", `${own}mail`, "users.*.mail", 1],
      ["mine", "users.me.mail", "users.me.#", 2],
      ["by name", `${own}mail`, `${own}mail`, 2],
      ["any", `${own}mail`, "users.*.mail", 2],
      ["mine", "users.me.mail", "users.me.#", 3],
      ["any", "users.me.mail", "users.*.mail", 3],
      ["any", "users.ben.mail", "users.*.mail", 4],
    ]);
    gate.off("users.me.#");
    assert.deepEqual(await gateway.answer("unsubscribe"), { pattern: `${own}#` });
  });

  it("publishes, replays and reports gaps and refusals by that name", async () => {
    const reports = [];
    const had = [];
    open({ resync: ({ patterns }) => reports.push(patterns) }).on("users.me.#", (data, { topic, replayed }) => had.push([topic, data, replayed]));
    gate.on("delivery:gap delivery:error", ({ patterns, pattern }) => reports.push(patterns ?? pattern));
    await gateway.welcome({ own });
    await gateway.answer("subscribe");
    const published = gate.publish("users.me.mail", 1);
    assert.equal((await gateway.answer("publish", { ok: true, epoch: "e1", offset: 101 })).topic, `${own}mail`);
    await published;
    const replayed = gate.replay("users.me.#", { from: 1, to: 2 });
    const asked = await gateway.answer("replay", { ok: true, events: [[`${own}mail`, 7, { id: "i1", time: 1, offset: 1, replayed: true }]], next: null });
    assert.equal(asked.pattern, `${own}#`);
    assert.equal(await replayed, 1);
    gateway.emit("gap", { patterns: [`${own}#`], from: 102, to: 103, count: 2, bytes: null, reason: "trimmed", recoverable: false });
    gateway.emit("status", { ended: [{ pattern: `${own}#`, error: { code: "forbidden", message: "no", retry: false } }] });
    await settle();
    assert.deepEqual(had, [["users.me.mail", 7, true]]);
    const named = [`${own}#`, "users.me.#"];
    assert.deepEqual(reports, [named, named, "users.me.#"]);
    assert.equal(gate.state.subscriptions["users.me.#"], "refused");
  });

  it("goes over to another user's topics with the next welcome that says so", async () => {
    open().on("users.me.a", () => {});
    await gateway.welcome({ own });
    await gateway.answer("subscribe");
    await gateway.comeBack(2, { own: "users.ben." });
    assert.deepEqual(gateway.connects[1].subscriptions, [{ pattern: `${own}a` }]);
    const requests = [await gateway.answer("subscribe"), await gateway.answer("unsubscribe")];
    assert.deepEqual(requests, [{ pattern: "users.ben.a" }, { pattern: `${own}a` }]);
  });

  it("does not mix up handlers that have been given the same options, whatever becomes of these", async () => {
    const options = { overflow: "latest" };
    open().on("users.me.a users.me.b", record("both"), null, options);
    options.overflow = "drop";
    await gateway.welcome({ own });
    const pattern = (name) => ({ pattern: `${own}${name}`, overflow: "latest" });
    assert.deepEqual([await gateway.answer("subscribe"), await gateway.answer("subscribe")], [pattern("a"), pattern("b")]);
    gate.off("users.me.a");
    assert.deepEqual(await gateway.answer("unsubscribe"), { pattern: `${own}a` });
  });

  it("is refused by the gateway for a client without a token", async () => {
    open().on("users.me.#", () => {});
    await gateway.welcome({ user: "anonymous" });
    assert.deepEqual(await gateway.answer("subscribe", { ok: false, error: { code: "forbidden", message: "no", retry: false } }), { pattern: "users.me.#" });
    await assert.rejects(gate.subscribed("users.me.#"), { code: "forbidden" });
  });

  it("ends without a trace while it waits for the user", async () => {
    open();
    const subscription = gate.subscribe("users.me.#", () => {});
    subscription.close();
    await assert.rejects(subscription.ready, { code: "disconnected" });
    await gateway.letIn({ own });
    assert.equal(gateway.requests.length, 0);
  });
});

describe("subscribing", () => {
  it("carries the handlers of the same task in the first CONNECT", async () => {
    open().on("orders.*.shipped", () => {});
    gate.on("orders.#", () => {});
    await gateway.welcome();
    assert.equal(gateway.address, "http://gateway.test/notifications");
    assert.deepEqual(gateway.connects, [{ subscriptions: [{ pattern: "orders.*.shipped" }, { pattern: "orders.#" }] }]);
    await gate.subscribed("orders.#");
  });

  it("subscribes with the first handler and unsubscribes with the last", async () => {
    await up();
    const [one, two] = [() => {}, () => {}];
    gate.on("a.b", one).on("a.b", two);
    assert.deepEqual(await gateway.answer("subscribe"), { pattern: "a.b" });
    gate.off("a.b", one);
    await settle();
    assert.equal(gateway.requests.length, 0);
    gate.off("a.b", two);
    assert.deepEqual(await gateway.answer("unsubscribe"), { pattern: "a.b" });
    await settle();
    assert.deepEqual(gate.state.subscriptions, {});
  });

  it("gives up waiting for an acknowledgement when the last handler leaves, and when the gate is closed", async () => {
    await up();
    gate.on("a", () => {}).on("b", () => {});
    const [left, closed] = [gate.subscribed("a"), gate.subscribed("b")];
    gate.off("a");
    await assert.rejects(left, { code: "disconnected", parts: { pattern: "a" } });
    await assert.rejects(gate.subscribed("a"), { code: "disconnected" });
    gate.close();
    await assert.rejects(closed, { code: "disconnected" });
  });

  it("sends a token that is a value, a function's or a promise's, and none where there is none", async () => {
    for (const [index, token] of ["t", () => "t", async () => "t", undefined, () => undefined].entries()) {
      gateway = new FakeGateway();
      open({ token });
      await gateway.until(() => gateway.connects.length === 1);
      assert.deepEqual(gateway.connects[0], { ...(index < 3 && { token: "t" }), subscriptions: [] });
      gate.close();
    }
  });

  it("unsubscribes a pattern whose last handler leaves between CONNECT and welcome", async () => {
    open().on("a", () => {});
    await gateway.until(() => gateway.connects.length === 1);
    gate.off("a");
    await gateway.welcome();
    assert.deepEqual(await gateway.answer("unsubscribe"), { pattern: "a" });
  });

  it("reports a refusal as delivery:error and rejects subscribed()", async () => {
    const errors = [];
    open().on("secret.#", () => {}).on("delivery:error", (error) => errors.push(error));
    const refusal = { code: "forbidden", message: "not allowed to subscribe 'secret.#'", retry: false, action: "subscribe" };
    await gateway.welcome({ subscriptions: [{ pattern: "secret.#", ok: false, error: refusal }] });
    assert.equal(errors.length, 1);
    assert.equal(errors[0].pattern, "secret.#");
    assert.equal(errors[0].error.code, "forbidden");
    assert.deepEqual(errors[0].error.parts, { action: "subscribe" });
    await assert.rejects(gate.subscribed("secret.#"), { code: "forbidden" });
    assert.deepEqual(gate.state.subscriptions, { "secret.#": "refused" });
  });

  it("asks for the strongest overflow policy of a pattern's handlers, as they come and go", async () => {
    await up();
    gate.on("a", () => {}, null, { overflow: "drop" });
    assert.deepEqual(await gateway.answer("subscribe"), { pattern: "a", overflow: "drop" });
    const subscription = gate.subscribe("a", { overflow: "latest" }, () => {});
    assert.deepEqual(await gateway.answer("subscribe"), { pattern: "a", overflow: "latest" });
    gate.on("a", () => {}, null, { overflow: "drop" });
    await settle();
    assert.deepEqual(gateway.requests, []);
    subscription.close();
    assert.deepEqual(await gateway.answer("subscribe"), { pattern: "a", overflow: "drop" });
  });

  it("asks for the past also when that is wanted while a first request is under way", async () => {
    await up();
    gate.on("a", () => {});
    await gateway.until(() => gateway.requests.length === 1);
    gate.subscribe("a", { since: { last: 3 } }, () => {});
    assert.deepEqual(await gateway.answer("subscribe"), { pattern: "a" });
    assert.deepEqual(await gateway.answer("subscribe"), { pattern: "a", since: { last: 3 } });
    await settle();
    assert.deepEqual(gateway.requests, []);
  });

  it("ends a subscription that a new token no longer grants, reports it once, and asks again only with the next token", async () => {
    const errors = [];
    open({ token: () => "t" }).on("a", () => {}).on("delivery:error", ({ pattern, error }) => errors.push([pattern, error.code]));
    await gateway.welcome();
    const refreshed = gate.refresh();
    await gateway.until(() => gateway.requests.length === 1);
    gateway.emit("status", { ended: [{ pattern: "a", error: { code: "forbidden", message: "no", retry: false } }] });
    await gateway.answer("refresh");
    await refreshed;
    await settle();
    assert.deepEqual([errors, gateway.requests, gate.state.subscriptions], [[["a", "forbidden"]], [], { a: "refused" }]);
    await refresh();
    assert.deepEqual(await gateway.answer("subscribe"), { pattern: "a" });
    await gate.subscribed("a");
  });

  it("asks again for what was refused when the gateway gives it new grants, and not for what they no longer cover", async () => {
    const errors = [];
    const forbidden = { code: "forbidden", message: "no", retry: false };
    open().on("delivery:error", ({ pattern, error }) => errors.push([pattern, error.code]));
    for (const pattern of ["kept", "lost", "won"]) gate.on(pattern, () => {});
    await gateway.welcome({
      subscriptions: [{ pattern: "kept", ok: true }, { pattern: "lost", ok: true }, { pattern: "won", ok: false, error: forbidden }],
    });
    gateway.emit("status", { granted: true, ended: [{ pattern: "lost", error: forbidden }] });
    assert.deepEqual(await gateway.answer("subscribe"), { pattern: "won" });
    await gate.subscribed("won");
    assert.deepEqual(errors, [["won", "forbidden"], ["lost", "forbidden"]]);
    assert.deepEqual([gateway.requests, gate.state.subscriptions], [[], { kept: "active", lost: "refused", won: "active" }]);
    gateway.emit("status", { granted: true });
    assert.deepEqual(await gateway.answer("subscribe"), { pattern: "lost" });
  });

  it("asks again for what the gateway cannot decide, by itself and after a growing pause, while its other requests continue", async () => {
    const reports = [];
    open().on("a", () => {}).on("b", () => {}).on("delivery:error", ({ error }) => reports.push(error.code));
    const unsure = { code: "authorize_failed", message: "no", retry: true, action: "subscribe to", name: "a" };
    await gateway.welcome({ subscriptions: [{ pattern: "a", ok: false, error: unsure }, { pattern: "b", ok: true }] });
    await gateway.until(() => gate.state.connection === "up");
    const ready = gate.subscribed("a");
    gate.on("c", () => {});
    assert.deepEqual(await gateway.answer("subscribe"), { pattern: "c" });
    await gate.subscribed("c");
    assert.deepEqual(gate.state.subscriptions, { a: "retrying", b: "active", c: "active" });
    assert.deepEqual(await gateway.answer("subscribe", { ok: false, error: unsure }), { pattern: "a" }, "a new subscription has no past");
    assert.deepEqual(await gateway.answer("subscribe"), { pattern: "a" });
    await ready;
    assert.deepEqual(reports, []);
  });

  it("does not ask again for a pattern without handlers, and leaves no timer", async () => {
    const timers = countTimers();
    open().on("a", () => {}).on("b", () => {});
    const error = { code: "authorize_failed", message: "no", retry: true };
    await gateway.letIn({ subscriptions: ["a", "b"].map((pattern) => ({ pattern, ok: false, error })) });
    assert.deepEqual(gate.state.subscriptions, { a: "retrying", b: "retrying" });
    gate.off("a");
    await settle();
    assert.deepEqual(gate.state.subscriptions, { b: "retrying" });
    assert.deepEqual(await gateway.answer("subscribe"), { pattern: "b" });
    gateway.emit("status", { ended: [{ pattern: "b", error }] });
    await settle();
    gate.close();
    await settle();
    assert.deepEqual([gateway.requests, timers.pending.size], [[], 0]);
  });

  it("brings a fresh token when the gateway asks for one, and reports when it cannot", async () => {
    const tokens = ["first", "second"];
    open({ token: () => tokens.shift() ?? Promise.reject(new Error("signed out")) });
    const failure = new Promise((resolve) => gate.once("delivery:error", ({ error }) => resolve(error.code)));
    await gateway.welcome();
    gateway.emit("status", { refresh: { within_s: 30 } });
    assert.deepEqual(await gateway.answer("refresh"), { token: "second" });
    gateway.emit("status", { refresh: { within_s: 30 } });
    assert.deepEqual([await failure, gate.state.connection], ["token_unavailable", "up"]);
  });

  it("says why the gateway disconnects it, and comes back with another token", async () => {
    let token = "old";
    const reports = [];
    open({ token: () => token }).on("connection:unauthorized", ({ code, parts }) => reports.push([code, parts.reason]));
    await gateway.welcome();
    token = "new";
    gateway.emit("status", { unauthorized: { code: "unauthorized", message: "the token has expired", retry: false, reason: "expired" } });
    gateway.cut("io server disconnect");
    await gateway.welcome({}, 2);
    assert.deepEqual(reports, [["unauthorized", "expired"]]);
    assert.equal(gateway.connects[1].token, "new");
  });

  it("ends a subscription with its signal, and only that one", async () => {
    await up();
    const handler = record("h");
    const leaving = new AbortController();
    gate.subscribe("a", { signal: leaving.signal }, handler);
    const other = gate.subscribe("a", record("other"));
    await gateway.answer("subscribe");
    await other.ready;
    leaving.abort();
    gateway.event("a", 1, 101);
    assert.deepEqual(calls, [["other", 1, 101]]);
    other.close();
    await gateway.answer("unsubscribe");
  });

  it("keeps its own requests within the rate that the gateway allows a client", async () => {
    open();
    await gateway.welcome({ limits: { inbound_per_s: 1, inbound_burst: 8 } });
    for (let i = 0; i < 20; i++) gate.on(`t.${i}`, () => {});
    await settle();
    assert.equal(gateway.requests.length, 4);
  });
});

describe("dispatching", () => {
  it("gives handlers (data, event)", async () => {
    const seen = [];
    open().on("orders.*.shipped", (...args) => seen.push(args));
    await gateway.welcome();
    gateway.event("orders.42.shipped", { carrier: "UPS" }, 101);
    const event = {
      topic: "orders.42.shipped", data: { carrier: "UPS" }, id: "i101", time: 1000, offset: 101, replayed: false,
      pattern: "orders.*.shipped",
    };
    assert.deepEqual(seen, [[{ carrier: "UPS" }, event]]);
  });

  it("hands the trace and the sender of an event to its handlers", async () => {
    const seen = [];
    open().on("a", (_data, { traceparent, by }) => seen.push(traceparent, by));
    await gateway.welcome();
    const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    gateway.event("a", 1, 101, { traceparent, by: "ana" });
    gateway.event("a", 2, 102);
    assert.deepEqual(seen, [traceparent, "ana", undefined, undefined]);
  });

  it("continues after a handler that throws, and reports it", async () => {
    mock.method(console, "error", () => {});
    const errors = [];
    open().on("a", () => {
      throw new Error("mine");
    });
    gate.on("a", record("second")).on("delivery:error", (notice) => errors.push(notice));
    await gateway.welcome();
    gateway.event("a", 1, 101);
    gateway.event("a", 2, 102);
    assert.deepEqual(calls, [["second", 1, 101], ["second", 2, 102]]);
    assert.deepEqual(errors.map(({ topic, error }) => [topic, error.message]), [["a", "mine"], ["a", "mine"]]);
    assert.equal(console.error.mock.callCount(), 2);
  });

  it("gives `all` every event once with its name first, without subscribing", async () => {
    const seen = [];
    open().on("all", (name, data) => seen.push([name, data]));
    gate.on("a.*", () => {}).on("a.b", () => {});
    await gateway.welcome();
    assert.deepEqual(gateway.connects[0].subscriptions, [{ pattern: "a.*" }, { pattern: "a.b" }]);
    gateway.event("a.b", 7, 101);
    gateway.emit("gap", { patterns: ["a.*"], from: 1, to: 2, count: 2, bytes: 9, reason: "overflow", recoverable: true });
    const names = seen.map(([name]) => name).filter((name) => !name.endsWith(":change"));
    assert.deepEqual(names, ["connection:up", "a.b", "delivery:gap"]);
  });

  it("does not call a subscription that an earlier handler of the same event has closed or aborted", async () => {
    const leaving = new AbortController();
    open().on("a", () => {
      later.close();
      leaving.abort();
    });
    const later = gate.subscribe("a", record("closed"));
    gate.subscribe("a", { signal: leaving.signal }, record("aborted"));
    gate.subscribe("a", record("stays"));
    await gateway.welcome();
    gateway.event("a", 1, 101);
    assert.deepEqual(calls, [["stays", 1, 101]]);
  });

  it("gives the past to the handlers that asked for it alone", async () => {
    open().on("a.#", record("old"));
    await gateway.welcome();
    gate.subscribe("a.b", { since: { last: 2 } }, record("new"));
    assert.deepEqual(await gateway.answer("subscribe"), { pattern: "a.b", since: { last: 2 } });
    gateway.event("a.b", null, 98, { replayed: true });
    gateway.event("a.b", null, 99, { replayed: true });
    gateway.event("a.b", null, 99, { replayed: true });
    gateway.event("a.b", null, 101);
    assert.deepEqual(calls.map(([label, , offset]) => [label, offset]), [["new", 98], ["new", 99], ["old", 101], ["new", 101]]);
  });
});

describe("a client that comes back, with handlers that want the newest alone", () => {
  const NEWEST = { overflow: "latest", repair: false };

  async function comeBack(listen) {
    const reports = [];
    open().on("delivery:backpressure", ({ conflated, where }) => reports.push([conflated, where]));
    listen(record);
    await gateway.welcome();
    gateway.event("price.a", 1, 101);
    await gateway.comeBack(2, { offset: 109 });
    calls.length = 0;
    return { calls, reports };
  }
  const missed = (topic, offset) => gateway.event(topic, offset, offset, { replayed: true });

  it("get the newest event of each topic that was missed, in order, before what is new, and once the number of the others", async () => {
    const { calls, reports } = await comeBack((record) => gate.subscribe("price.*", NEWEST, record("newest")).pattern && gate.on("price.b", record("all")));
    for (const [topic, offset] of [["price.a", 102], ["price.b", 103], ["price.a", 104], ["price.b", 105], ["price.a", 106]]) missed(topic, offset);
    assert.deepEqual(calls, [["all", 103, 103], ["all", 105, 105]]);
    gateway.event("price.b", 110, 110);
    assert.deepEqual(calls.slice(2), [["newest", 105, 105], ["newest", 106, 106], ["newest", 110, 110], ["all", 110, 110]]);
    await gateway.comeBack(3, { offset: 119 });
    missed("price.a", 111);
    gateway.emit("cursor", { epoch: "e1", offset: 119 });
    assert.deepEqual(calls.at(-1), ["newest", 111, 111]);
    assert.deepEqual([reports, gate.state.missed], [[[3, "browser"]], 0]);
  });

  it("get them when the gateway says that this was all, and over a second break", async () => {
    const { calls } = await comeBack((record) => gate.subscribe("price.*", NEWEST, record("newest")));
    missed("price.a", 102);
    await gateway.comeBack(3, { offset: 109 });
    assert.equal(gateway.connects[2].resume.offset, 102);
    missed("price.a", 103);
    assert.deepEqual(calls, []);
    gateway.emit("cursor", { epoch: "e1", offset: 109 });
    assert.deepEqual(calls, [["newest", 103, 103]]);
  });

  it("leave what is held to a later page that resumes where this one stands", async () => {
    await comeBack((record) => gate.subscribe("price.*", NEWEST, record("newest")));
    for (const [topic, offset] of [["price.a", 102], ["price.b", 104], ["price.a", 106]]) missed(topic, offset);
    assert.equal(gate.state.offset, 103);
    gateway.emit("cursor", { epoch: "e1", offset: 109 });
    assert.equal(gate.state.offset, 109);
  });

  it("get what is held before a gap is reported", async () => {
    const { calls } = await comeBack((record) => gate.subscribe("price.*", NEWEST, record("newest")) && gate.on("delivery:gap", record("gap")));
    missed("price.a", 102);
    gateway.emit("gap", { patterns: ["price.*"], from: 103, to: 104, count: 2, bytes: 1, reason: "trimmed", recoverable: false });
    assert.deepEqual(calls.map(([label]) => label), ["newest", "gap"]);
  });

  it("get what is held before an event that another handler of the pattern wants at once", async () => {
    const { calls } = await comeBack((record) => gate.subscribe("price.*", NEWEST, record("newest")));
    missed("price.a", 102);
    gate.subscribe("price.*", () => {});
    missed("price.b", 103);
    assert.deepEqual(calls, [["newest", 102, 102], ["newest", 103, 103]]);
  });

  it("hold a bounded number of topics", async () => {
    const { calls } = await comeBack((record) => gate.subscribe("price.*", NEWEST, record("newest")));
    for (let n = 0; n < 1500; n++) missed(`price.${n}`, 102 + n);
    assert.equal(calls.length, 1000);
    gateway.emit("cursor", { epoch: "e1", offset: 1700 });
    assert.deepEqual([calls.length, calls.at(-1)[2]], [1500, 1601]);
  });

  it("are not those that want repairs, another policy, or a past that was asked for", async () => {
    const { calls } = await comeBack((record) => {
      gate.subscribe("price.a", { overflow: "latest" }, record("repaired"));
      gate.subscribe("price.b", NEWEST, record("shared"));
      gate.subscribe("price.b", record("catches up"));
    });
    for (const [topic, offset] of [["price.a", 102], ["price.a", 103], ["price.b", 104]]) missed(topic, offset);
    assert.deepEqual(calls.map(([label]) => label), ["repaired", "repaired", "shared", "catches up"]);
  });
});

describe("the past", () => {
  it("reaches the handlers that asked for it before the first connection", async () => {
    open().subscribe("a", { since: { last: 2 } }, record("a"));
    await gateway.welcome();
    assert.deepEqual(gateway.connects[0].subscriptions, [{ pattern: "a", since: { last: 2 } }]);
    for (const offset of [99, 100, 101]) gateway.event("a", null, offset, { replayed: true });
    assert.deepEqual(calls.map(([, , offset]) => offset), [99, 100, 101]);
  });

  it("has been asked for when its subscription is ready, though the pattern was active before", async () => {
    await wanting();
    let ready = false;
    const { ready: acknowledged } = gate.subscribe("a", { since: { last: 3 } }, () => {});
    void acknowledged.then(() => {
      ready = true;
    });
    await gateway.until(() => gateway.requests.length === 1, "a request");
    assert.equal(ready, false);
    await gateway.answer("subscribe");
    await acknowledged;
  });

  it("begins at the end of the log where it asks for what is after that, also on the next connection", async () => {
    open().subscribe("a", { since: { offset: 500 } }, () => {});
    await gateway.welcome();
    gate.subscribe("b", { since: { offset: 600 } }, () => {});
    await gateway.answer("subscribe", { ok: true, pattern: "b", epoch: "e1", offset: 100 });
    await gate.subscribed("b");
    await gateway.comeBack();
    assert.deepEqual([await gateway.answer("subscribe"), await gateway.answer("subscribe")], [
      { pattern: "a", since: { epoch: "e1", offset: 100 } },
      { pattern: "b", since: { epoch: "e1", offset: 100 } },
    ]);
  });

  it("is that of the call, though the application uses its object again", async () => {
    await up();
    const since = { offset: 50 };
    gate.subscribe("a", { since }, () => {});
    since.offset = 60;
    gate.subscribe("b", { since }, () => {});
    assert.deepEqual([await gateway.answer("subscribe", 1), await gateway.answer("subscribe", 2)].map(({ since: { offset } }) => offset), [50, 60]);
  });

  it("is asked for once by two handlers of one pattern, the wider one", async () => {
    await up();
    gate.subscribe("a", { since: { last: 100 } }, record("long"));
    gate.subscribe("a", { since: { last: 5 } }, record("short"));
    assert.deepEqual(await gateway.answer("subscribe"), { pattern: "a", since: { last: 100 } });
    gateway.event("a", null, 98, { replayed: true });
    assert.deepEqual([calls.length, gateway.requests.length], [2, 0]);
  });

  it("is asked for twice by two handlers of one pattern, where only the gateway knows which goes further back", async () => {
    await up();
    gate.subscribe("a", { since: { time: 1000 } }, () => {});
    gate.subscribe("a", { since: { last: 5 } }, () => {});
    assert.deepEqual([await gateway.answer("subscribe", 1), await gateway.answer("subscribe", 2)].map(({ since }) => since), [{ time: 1000 }, { last: 5 }]);
  });

  it("continues for the first handler when a second one asks from elsewhere in the meantime, and goes back for the second", async () => {
    await up();
    gate.subscribe("a", { since: { offset: 50 } }, record("first"));
    await gateway.answer("subscribe", 1);
    gateway.event("a", null, 51, { replayed: true });
    gate.subscribe("a", { since: { last: 60 } }, record("second"));
    await gateway.answer("subscribe", 2);
    for (const offset of [52, 41, 42]) gateway.event("a", null, offset, { replayed: true });
    assert.deepEqual(calls.filter(([label]) => label === "second").map(([, , offset]) => offset), [52, 41, 42]);
  });

  it("is over with the first new event though its request has no answer, and the next connection carries its pattern", async () => {
    await up();
    gate.subscribe("a", { since: { offset: 50 } }, record("a"));
    await gateway.until(() => gateway.requests.length > 0, "a request");
    for (const offset of [60, 101]) gateway.event("a", null, offset, { replayed: true });
    await gateway.comeBack(2, { offset: 102 });
    assert.deepEqual(gateway.connects[1].subscriptions, [{ pattern: "a" }]);
    gateway.event("a", null, 102, { replayed: true });
    assert.deepEqual(calls.map(([, , offset]) => offset), [60, 101, 102]);
  });

  it("continues where it stopped, when its pattern was ended before its request had an answer", async () => {
    open().on("b", () => {});
    await gateway.welcome();
    gate.subscribe("a", { since: { offset: 50 } }, record("a"));
    await gateway.until(() => gateway.requests.length > 0, "a request");
    gateway.event("a", null, 60, { replayed: true });
    gateway.emit("status", { ended: [{ pattern: "a", error: { code: "forbidden", message: "no" } }] });
    await gateway.answer("subscribe");
    gateway.event("b", null, 103);
    await gateway.answer("subscribe");
    for (const offset of [101, 102]) gateway.event("a", null, offset, { replayed: true });
    assert.deepEqual(calls.filter(([label]) => label === "a").map(([, , offset]) => offset), [60, 101, 102]);
  });

  it("is replayed page by page, to one pattern's handlers", async () => {
    open().on("a.*", record("a.*")).on("#", record("#"));
    await gateway.welcome();
    const replaying = gate.replay("a.*", { from: 3, to: 9 });
    const page = (offset, next) => ({ ok: true, events: [["a.b", offset, { id: "i", time: 1, offset, replayed: true }]], next });
    assert.deepEqual(await gateway.answer("replay", page(4, 6)), { pattern: "a.*", from: 3, to: 9, epoch: "e1" });
    assert.deepEqual(await gateway.answer("replay", page(7, null)), { pattern: "a.*", from: 6, to: 9, epoch: "e1" });
    assert.equal(await replaying, 2);
    assert.deepEqual(calls, [["a.*", 4, 4], ["a.*", 7, 7]]);
    assert.equal(gate.state.offset, 100);
  });
});

describe("connection", () => {
  it("resumes with its cursor and the subscriptions that were active", async () => {
    const ups = [];
    const resumed = [];
    open({ token: async () => "t" }).on("a", () => {});
    gate.on("connection:up", (up) => ups.push(up.resumed)).on("delivery:resumed", (at) => resumed.push(at));
    await gateway.welcome();
    gateway.event("a", 1, 105);
    gateway.cut();
    assert.equal(gate.state.connection, "waiting");
    gate.on("b", () => {});
    await gateway.welcome({ offset: 110 }, 2);
    assert.deepEqual(gateway.connects[1], { token: "t", resume: { epoch: "e1", offset: 105 }, subscriptions: [{ pattern: "a" }] });
    assert.deepEqual(await gateway.answer("subscribe"), { pattern: "b" });
    assert.deepEqual(ups, [null, true]);
    assert.deepEqual(resumed, [{ epoch: "e1", offset: 110 }]);
  });

  it("rejects those that wait for a subscription when the connection is refused for good", async () => {
    open({ token: "bad" }).on("connection:refused", () => {});
    const subscription = gate.subscribe("a", () => {});
    const waiting = [subscription.ready, gate.subscribed("a"), events(gate, "b").next()];
    await gateway.refuseConnect({ code: "unauthorized", message: "no", retry: false });
    for (const each of [...waiting, subscription.ready]) await assert.rejects(each, { code: "unauthorized" });
    gate.open();
    const ready = gate.subscribed("a");
    await gateway.welcome({}, 2);
    await ready;
  });

  it("lets a handler of connection:down open again at once", async () => {
    const refused = [];
    open({ reconnectDelayMinMs: 60_000, reconnectDelayMaxMs: 60_000 }).on("connection:down", () => gate.open());
    gate.on("connection:refused", (error) => refused.push(error.code));
    await gateway.welcome();
    await gateway.comeBack();
    assert.deepEqual([gate.state.connection, gateway.attempts, refused], ["up", 2, []]);
  });

  it("reports the gateway's own answer when long-polling is refused", async () => {
    const messages = [];
    open().on("connection:refused", ({ parts }, { delayMs }) => messages.push([parts.reason, delayMs]));
    const answers = [
      { status: 400, responseText: '{"code":1,"message":"Session ID unknown"}' },
      { status: 502, responseText: "<h1>nginx</h1>" },
      { status: 429, responseText: '{"code":3,"message":"too many","retry_after_s":0.05}' },
      { status: 503, responseText: "", getResponseHeader: (name) => (name === "Retry-After" ? "0.06" : null) },
    ];
    for (const [index, context] of answers.entries()) {
      await gateway.until(() => gateway.connects.length === index + 1);
      gateway.fail(context);
    }
    assert.deepEqual(messages.map(([reason]) => reason), ["Session ID unknown (HTTP 400)", "HTTP 502", "too many (HTTP 429)", "HTTP 503"]);
    assert.ok(messages[2][1] >= 50 && messages[3][1] >= 60, String(messages));
    await gateway.until(() => gateway.connects.length === 5);
  });

  const EXPIRED = { code: "unauthorized", message: "the token has expired", retry: false, reason: "expired" };

  it("asks a token function again after a token that has expired, a few times", async () => {
    let asked = 0;
    open({ token: () => `t${++asked}` });
    for (let attempt = 1; attempt <= 5; attempt++) {
      await gateway.refuseConnect(EXPIRED, attempt);
    }
    assert.equal(gate.state.connection, "refused");
    assert.deepEqual(gateway.connects.map(({ token }) => token), ["t1", "t2", "t3", "t4", "t5"]);
  });

  it("does not show the gateway a token again that has expired", async () => {
    const reports = [];
    open({ token: async () => "the same" }).on("connection:refused", ({ parts }, { delayMs }) => reports.push([parts.reason, delayMs === null]));
    await gateway.refuseConnect(EXPIRED);
    await gateway.until(() => gate.status === "refused");
    assert.deepEqual([reports, gateway.connects.length], [[["expired", false], ["expired", true]], 1]);
    gate.open();
    await gateway.welcome({}, 2);
    assert.equal(gate.status, "live");
  });

  for (const [what, refusal] of Object.entries({
    "a wrong secret": { code: "unauthorized", message: "not authorized", retry: false, reason: "bad_signature" },
    "a missing claim": { code: "unauthorized", message: "not authorized", retry: false, reason: "missing_claim", claim: "sub" },
    "a token that the application refuses": { code: "unauthorized", message: "not authorized", retry: false, reason: "not_accepted" },
    "a refusal without a code": { message: "no" },
  })) {
    it(`is refused for good at once, also with a token function: ${what}`, async () => {
      let asked = 0;
      const delays = [];
      open({ token: () => `t${++asked}` }).on("connection:refused", (_error, { delayMs }) => delays.push(delayMs));
      await gateway.refuseConnect(refusal);
      await settle();
      assert.deepEqual([gate.status, delays, asked], ["refused", [null], 1]);
    });
  }

  it("tries again with the same token where the gateway says that it helps", async () => {
    open({ token: () => "t" });
    await gateway.refuseConnect({ code: "unauthorized", message: "not authorized", retry: true, reason: "keys_pending" });
    await gateway.welcome({}, 2);
    assert.equal(gate.status, "live");
  });

  it("names the cure by the reason", () => {
    for (const [code, parts, cure] of /** @type {[string, object, RegExp][]} */ ([
      ["unreachable", { reason: "no token in time" }, /token function has not answered.*again by itself/],
      ["unreachable", { reason: "SecurityError: insecure" }, /https:\/\/ address.*connect-src/],
      ["unreachable", { reason: '[Exception... "The load for this content was blocked."  nsresult: "0x805e0006 (NS_ERROR_CONTENT_BLOCKED)"]' }, /connect-src/],
      ["unreachable", { reason: "websocket error" }, /console names a Content-Security-Policy/],
      ["unreachable", { reason: "TypeError: Failed to fetch" }, /console names a Content-Security-Policy/],
      ["unreachable", { reason: "websocket error: no answer, or the gateway may not allow the origin null (HEADGATE_ALLOWED_ORIGINS)" }, /serve the file over http/],
      ["unreachable", { reason: "websocket error: no answer, or the gateway may not allow the origin http://a (HEADGATE_ALLOWED_ORIGINS)" }, /copy the HEADGATE_ALLOWED_ORIGINS line/],
      ["unreachable", { reason: "HTTP redirect" }, /Another server answers/],
      ["unreachable", { reason: "about to stop (HTTP 503)" }, /gateway runs there/],
      ["unauthorized", { topic: "a", reason: "another_user" }, /outbox of another user.*Make a gate for that user/],
      ["forbidden", { action: "say what was seen by", name: "anonymous" }, /user with a token/],
    ])) assert.match(new HeadgateError(code, parts).message, cure);
    assert.throws(() => connect(/** @type {any} */ ({ token: "t" })), /options come second/);
  });

  it("says which gateway cannot be reached, and shows the console errors that have no handler", async () => {
    const shown = mock.method(console, "error", () => {});
    const messages = () => shown.mock.calls.map(({ arguments: [error] }) => error.message);
    open();
    await gateway.until(() => gateway.connects.length === 1);
    gateway.fail();
    assert.match(messages()[0], /^No connection to http:\/\/gateway\.test\/notifications: xhr poll error\. .*docs\/troubleshooting\.md/);
    assert.equal(messages().length, 1);
    await gateway.welcome({}, 2);
    gate.on("secret.#", () => {});
    const error = { code: "forbidden", message: "not allowed to subscribe 'secret.#'", retry: false };
    await gateway.answer("subscribe", { ok: false, error });
    await settle();
    assert.match(messages()[1], /^not allowed to subscribe 'secret\.#'\. .*grant/);
    // One that was in before comes back by itself.
    await reconnect();
    gateway.fail();
    gate.on("delivery:error", () => {}).on("other.#", () => {});
    await gateway.letIn({ subscriptions: [{ pattern: "other.#", ok: false, error }] }, 4);
    assert.equal(messages().length, 2);
  });

  it("gives up an attempt that brings no welcome", async () => {
    open({ connectTimeoutMs: 10 });
    await gateway.until(() => gateway.connects.length >= 2);
  });

  it("leaves a gateway that drains, within the time given, and resumes", async () => {
    const moving = [];
    open().on("a", () => {});
    gate.on("connection:moving", (notice) => moving.push(notice.reason));
    await gateway.welcome();
    gateway.emit("status", { moving: { reason: "deploy", within_s: 0.01 } });
    await gateway.until(() => gateway.connects.length === 2);
    assert.deepEqual(moving, ["deploy"]);
    assert.deepEqual(gateway.connects[1].resume, { epoch: "e1", offset: 100 });
  });

  it("leaves a gateway that drains only when its requests are answered, so that their outcomes are known", async () => {
    await up();
    const sent = gate.publish("a", 1);
    gateway.emit("status", { moving: { reason: "deploy", within_s: 0 } });
    await gateway.until(() => gate.status === "moving");
    // Timers fire in their order, and that of the move began before this one.
    await new Promise((resolve) => setTimeout(resolve, 2));
    assert.equal(gate.status, "moving");
    await gateway.answer("publish", { ok: true, id: "x", epoch: "e1", offset: 101 });
    assert.equal((await sent).offset, 101);
    await gateway.until(() => gateway.connects.length === 2);
  });

  it("comes back at once when a gateway that asked it to move does not wait for it", async () => {
    const downs = [];
    open({ reconnectDelayMinMs: 60_000, reconnectDelayMaxMs: 60_000 }).on("a", () => {});
    gate.on("connection:down", ({ delayMs }) => downs.push(delayMs));
    await gateway.welcome();
    gateway.emit("status", { moving: { reason: "rebalance", within_s: 1000 } });
    gateway.cut("io server disconnect");
    await gateway.until(() => gateway.connects.length === 2);
    assert.deepEqual(downs, [0]);
  });

  it("reports bus and backpressure", async () => {
    const notices = [];
    open().on("delivery:backpressure", (notice) => notices.push(notice));
    await gateway.welcome();
    gateway.emit("status", { bus: "down" });
    assert.equal(gate.state.bus, "down");
    gateway.emit("backpressure", { state: "warning", queued: 200, queued_bytes: 5, discarded: 0 });
    assert.deepEqual(notices, [{ state: "warning", queued: 200, queuedBytes: 5, discarded: 0, where: "gateway" }]);
  });

  it("leaves the names in an event's data as they are", async () => {
    const got = [];
    open().subscribe("orders.*", (data, event) => got.push(data, event.data));
    await gateway.welcome();
    const data = { unit_price: 3, lines: [{ line_no: 1 }] };
    gateway.event("orders.1", data, 101);
    assert.deepEqual(got, [data, data]);
  });

  it("refreshes a token that says when it expires", async () => {
    const now = Math.floor(Date.now() / 1000);
    const jwt = (exp) => `h.${btoa(JSON.stringify({ exp, iat: now }))}.s`;
    const [first, second] = [jwt(now + 1), jwt(now + 3600)];
    const tokens = [first, second];
    await up({ token: () => tokens.shift() });
    assert.deepEqual(await gateway.answer("refresh"), { token: second });
  });

  it("keeps a given token for the next connections, until it is refused or the source brings another", async () => {
    let asked = 0;
    open({ token: () => `source${++asked}` }).on("connection:refused", () => {});
    await gateway.welcome();
    assert.equal(await refresh("given"), "given");
    assert.equal((await reconnect()).token, "given");
    gateway.refuse({ code: "unauthorized", message: "expired", retry: false });
    await gateway.welcome({}, 3);
    assert.equal(gateway.connects[2].token, "source2");
    assert.deepEqual([await refresh("given"), await refresh()], ["given", "source3"]);
    assert.equal((await reconnect()).token, "source4");
  });

  it("asks the source at the next connect after a refresh with no token, null too", async () => {
    let asked = 0;
    await up({ token: () => `source${++asked}` });
    assert.deepEqual([await refresh(null), (await reconnect()).token], ["source2", "source3"]);
  });

  it("shows a token that was given without a connection, also after it was refused for good", async () => {
    open({ token: "old" }).on("connection:refused", () => {});
    await gateway.refuseConnect({ code: "unauthorized", message: "expired", retry: false });
    await gate.refresh("new");
    await gateway.welcome({}, 2);
    await reconnect();
    assert.deepEqual(gateway.connects.map(({ token }) => token), ["old", "new", "new"]);
  });

  it("shows a token that was given while the gateway decided on the one before, which it refuses", async () => {
    open({ token: "old" }).on("connection:refused", () => {});
    await gateway.until(() => gateway.connects.length === 1);
    await gate.refresh("new");
    gateway.refuse({ code: "unauthorized", message: "expired", retry: false, reason: "expired" });
    await gateway.welcome({}, 2);
    assert.deepEqual(gateway.connects.map(({ token }) => token), ["old", "new"]);
  });

  it("does not keep a token that the gateway refused on the live connection", async () => {
    await up({ token: "old" });
    const refreshed = gate.refresh("bad");
    await gateway.answer("refresh", { ok: false, error: { code: "unauthorized", message: "no", retry: false } });
    await assert.rejects(refreshed, { code: "unauthorized" });
    assert.equal((await reconnect()).token, "old");
  });

  it("reads the answer of a fetch as the token, and calls the function again after a failed one", async () => {
    const refused = [];
    const answers = [new Response("<html>502 Bad Gateway</html>", { status: 502 }), new Response("t")];
    open({ token: async () => answers.shift() }).on("connection:refused", (error) => refused.push([error.code, error.retry, error.cause.message]));
    await gateway.welcome();
    assert.deepEqual([refused, gateway.connects.map(({ token }) => token)], [[["token_unavailable", true, "HTTP 502"]], ["t"]]);
  });

  it("reports a failed refresh, even if the token function threw nothing, and tries again", async () => {
    mock.method(Math, "random", () => 0);
    mock.timers.enable({ apis: ["setTimeout", "Date"], now: Date.now() });
    const now = Math.floor(Date.now() / 1000);
    const jwt = (exp) => `h.${btoa(JSON.stringify({ exp, iat: now }))}.s`;
    const errors = [];
    const answers = [jwt(now + 100), undefined, jwt(now + 3600)];
    const token = () => {
      const next = answers.shift();
      return next ?? Promise.reject(next);
    };
    open({ token }).on("delivery:error", ({ error }) => errors.push([error.code, error.retry]));
    for (let turn = 0; turn < 2; turn++) await settle();
    await gateway.welcome();
    // In steps, or the client would take it for sleep.
    for (let tick = 0; tick < 16; tick++) mock.timers.tick(5000);
    await settle();
    assert.deepEqual([errors, gateway.requests], [[["token_unavailable", true]], []]);
    mock.timers.tick(1000);
    await settle();
    assert.equal(gateway.requests[0]?.name, "refresh");
    gate.close();
    mock.timers.reset();
  });

  it("leaves no listener on the application's signals when closed", async () => {
    const { signal } = new AbortController();
    open().subscribe("a", { signal }, () => {});
    const turn = events(gate, "b", { signal }).next();
    assert.equal(getEventListeners(signal, "abort").length, 2);
    gate.close();
    assert.equal((await turn).done, true);
    assert.equal(getEventListeners(signal, "abort").length, 0);
  });

  it("refuses options that would make it spin or never connect", () => {
    const most = 2 ** 31 - 1;
    const bounds = { reconnectDelayMinMs: [0, most], reconnectDelayMaxMs: [1, most], connectTimeoutMs: [1, most], requestTimeoutMs: [1, most], inboxLimit: [1, 1_000_000] };
    for (const [name, [least, largest]] of Object.entries(bounds)) {
      for (const value of [least - 1, largest + 1, -1, Number.NaN, Infinity, -Infinity, Number.MAX_SAFE_INTEGER, "500", null, true, [5], 5n]) {
        const text = new RegExp(`^headgate: connect: ${name} must be a (whole )?number from ${least} to ${largest}, not `);
        assert.throws(() => connect("http://gateway.test", { autoConnect: false, [name]: value }), { name: "TypeError", message: text }, `${name} ${String(value)}`);
      }
      for (const value of [least, largest]) connect("http://gateway.test", { io: gateway.io, autoConnect: false, [name]: value }).close();
    }
  });

  it("refuses any other option of the wrong type, and options that are none", () => {
    const bad = {
      namespace: ["a b", "a/b", "a,b", "a?b", "x".repeat(65), 1], path: ["socket.io", "", "/a?b", "/a#b", 1], autoConnect: ["false", 0], token: [{}, 1], auth: ["t", null],
      resume: [1, "e1:5"], resync: [{}], transports: ["polling"], socketOptions: [1], WebSocket: [{}],
    };
    for (const [name, values] of Object.entries(bad)) {
      for (const value of values) assert.throws(() => connect("http://gateway.test", { autoConnect: false, [name]: value }), { name: "TypeError", message: new RegExp(`^headgate: connect: ${name} must be `) }, `${name} ${value}`);
    }
    for (const options of ["t", null, 1]) assert.throws(() => connect("http://gateway.test", options), { name: "TypeError", message: /^headgate: connect: options must be object, not / });
    open();
    for (const options of [{ overflow: "all" }, { repair: 1 }, { since: 5 }, { since: { offset: Number.NaN } }, { since: { offset: -1 } }, { since: { last: 0 } }, { since: { last: 1.5 } }, { since: { time: "now" } }]) {
      assert.throws(() => gate.subscribe("a", options, () => {}), { name: "TypeError", message: /^headgate: subscribe: (since: )?\w+ must be / }, JSON.stringify(options));
    }
  });

  it("refuses a position that is none, and takes that of a gate that was never up for no position", async () => {
    const position = { epoch: "e1", offset: 7 };
    for (const wrong of [{ epoch: 5 }, { epoch: "" }, { epoch: null }, { epoch: undefined }, { offset: "7" }, { offset: -1 }, { offset: 1.5 }, { offset: Number.NaN }, { offset: null }]) {
      const message = new RegExp(`^headgate: connect: resume: ${Object.keys(wrong)} must be `);
      assert.throws(() => open({ resume: { ...position, ...wrong } }), { name: "TypeError", message }, JSON.stringify(wrong));
    }
    assert.throws(() => open({ resume: {} }), /resume: epoch must be /);
    const { epoch, offset } = open({ autoConnect: false }).state;
    for (const [resume, asked] of [[{ epoch, offset }, undefined], [null, undefined], [gate.state, undefined], [{ ...gate.state, ...position }, position]]) {
      gateway = new FakeGateway();
      open({ resume }).on("connection:refused", assert.fail);
      await gateway.until(() => gateway.connects.length);
      assert.deepEqual(gateway.connects[0].resume, asked);
      gate.close();
    }
  });

  it("reports an option that it does not have, and the one that was meant", async () => {
    const warned = mock.method(console, "warn", () => {});
    const news = () => {
      const texts = warned.mock.calls.map(({ arguments: [text] }) => text.replace(/ \(docs.*/, ""));
      warned.mock.resetCalls();
      return texts;
    };
    for (const [options, expected] of [
      [{ tokens: "t" }, 'headgate: connect has no option "tokens": did you mean token?'],
      [{ requestTimeoutMS: 1 }, 'headgate: connect has no option "requestTimeoutMS": did you mean requestTimeoutMs?'],
      [{ reconnectionDelay: 1 }, 'headgate: connect has no option "reconnectionDelay": did you mean reconnectDelayMinMs?'],
      [{ auth: { token: "t" } }, "headgate: connect takes no token from auth: {token}: did you mean the option token?"],
    ]) {
      connect("http://gateway.test", { autoConnect: false, ...options }).close();
      assert.deepEqual(news(), [expected]);
    }
    connect("http://gateway.test", { autoConnect: false, colour: 1 }).close();
    assert.match(news()[0], /^headgate: connect has no option "colour": it has namespace, autoConnect, token, /);
    open({ auth: { tenant: 7 }, token: "t" });
    assert.deepEqual(news(), []);
    gate.subscribe("a", { overFlow: "drop" }, () => {});
    await assert.rejects(gate.publish("a", 1, { ID: "x" }));
    events(gate, "a", { limits: 5 });
    assert.deepEqual(news().map((text) => text.match(/did you mean (\w+)/)?.[1]), ["overflow", "id", "limit"]);
  });

  it("names its own events and calls for those of Socket.IO", () => {
    const warned = mock.method(console, "warn", () => {});
    open();
    gate.on("connect connected toString", () => {});
    assert.deepEqual(warned.mock.calls.map(({ arguments: [text] }) => text.replace(/ \(docs.*/, "")), ['headgate: "connect" is a topic here, for events that someone publishes: did you mean "connection:up"?']);
    assert.throws(() => /** @type {any} */ (gate).emit("a", 1), { name: "TypeError", message: /^headgate: a gate has no emit\(\): did you mean publish\(topic, data\)\?/ });
  });

  it("names the lifecycle event that a name with a colon almost is, and knows them all", async () => {
    const warned = mock.method(console, "warn", () => {});
    const types = await readFile(new URL("../types/index.d.ts", import.meta.url), "utf8");
    const names = [...types.matchAll(/^ {2}"([a-z]+:[a-z]+)": \[/gm)].map(([, name]) => name);
    assert.deepEqual(names.toSorted(), LIFECYCLE.toSorted());
    open();
    gate.on([...names, "order:placed", "connection:update", "subscription:a"].join(" "), () => {});
    assert.deepEqual(warned.mock.calls, []);
    gate.on("delivery:gapp state:chnge Connection:up", () => {});
    assert.deepEqual(warned.mock.calls.map(({ arguments: [text] }) => text.match(/no event of the gate is called "(\S+)": did you mean "(\S+)"/).slice(1)), [["delivery:gapp", "delivery:gap"], ["state:chnge", "state:change"], ["Connection:up", "connection:up"]]);
  });

  it("says what a refused request lacks, and blames versions only if the gateway does not know it", async () => {
    await up();
    for (const [reason, message] of /** @type {[string, RegExp][]} */ ([["token: expected text", /There is no token to refresh with/], ["inbox: ids: the inbox has no item k/1", /k\/1\. Correct .* If the gateway does not know it/]])) {
      const refreshed = gate.refresh();
      await gateway.answer("refresh", { ok: false, error: { code: "invalid_request", message: `invalid request: ${reason}`, reason, retry: false } });
      await assert.rejects(refreshed, { code: "invalid_request", message });
    }
  });

  it("has no timer until it is opened, and none when it is opened after its end", async () => {
    const timers = countTimers();
    gate = connect("http://gateway.test", { io: gateway.io, autoConnect: false });
    gate.on("a", () => {});
    await settle();
    assert.equal(timers.started, 0);
    gate.open();
    assert.ok(timers.pending.size > 0);
    gate.close();
    gate.open();
    assert.equal(timers.pending.size, 0);
    const never = connect("http://gateway.test", { io: gateway.io, autoConnect: false });
    never.close();
    never.open();
    assert.equal(timers.pending.size, 0);
  });

  it("ends a subscription at the end of a block with `using`, as `close` does", async () => {
    const subscription = open({}).subscribe("a", () => {});
    await gateway.welcome();
    assert.equal(subscription.status, "active");
    subscription[Symbol.dispose ?? Symbol.for("Symbol.dispose")]();
    assert.equal(subscription.status, "idle");
  });

  it("leaves no timer and no listener when closed", async () => {
    const timers = countTimers();
    const handler = mock.fn();
    const downs = [];
    open().on("a", handler).on("connection:down", ({ reason }) => downs.push(reason));
    await gateway.welcome();
    const pending = gate.publish("a", 1);
    gate.close();
    gate.close();
    await assert.rejects(pending, { code: "outcome_unknown" });
    await assert.rejects(gate.publish("a", 1), { code: "closed" });
    gateway.event("a", 1, 101);
    await settle();
    assert.equal(handler.mock.callCount(), 0);
    assert.equal(gateway.listenerCount, 0);
    assert.deepEqual(downs, ["closed"]);
    assert.equal(gate.state.connection, "closed");
    assert.equal(timers.started > 0, true);
    assert.equal(timers.pending.size, 0);
  });
});

describe("a welcome that cannot be read", () => {
  for (const [what, body] of Object.entries({
    "without a body": undefined, "a text": "welcome", "without subscriptions": { session: "s", epoch: "e1", offset: 1, limits: {} },
    "without limits": { session: "s", epoch: "e1", offset: 1, subscriptions: [] }, "without a position": { session: "s", limits: {}, subscriptions: [] },
  })) {
    it(`is a lost connection with a reason, and the next one counts: ${what}`, async () => {
      const reports = [];
      open().on("connection:refused", ({ code, parts }) => reports.push([code, parts.reason.startsWith("the welcome cannot be read: TypeError")]));
      gate.on("a", () => {});
      await gateway.until(() => gateway.connects.length === 1);
      gateway.connected = true;
      gateway.emit("welcome", body);
      assert.deepEqual([reports, gate.status], [[["unreachable", true]], "waiting"]);
      await gateway.welcome({}, 2);
      assert.deepEqual([gate.status, gate.state.subscriptions], ["live", { a: "active" }]);
      assert.equal(gateway.connects[1].resume, undefined);
    });
  }
});

describe("a gate that a handler closes", () => {
  for (const name of ["connection:up", "connection:down", "status:change", "state:change", "delivery:gap", "a"]) {
    it(`is closed once, and calls nothing after that: ${name}`, async () => {
      const reported = mock.method(console, "error", () => {});
      open();
      let closes = 0;
      let late = 0;
      gate.on(name, () => {
        closes++;
        gate.close();
      });
      gate.on("a", () => late++);
      if (name.includes("change")) await gateway.until(() => gate.status === "closed", "the end");
      else {
        await gateway.welcome();
        gateway.emit("gap", { patterns: ["a"], from: 1, to: 2, count: 2, bytes: 9, reason: "trimmed", recoverable: false });
        if (name === "connection:down") gateway.cut();
        gateway.event("a", 1, 101);
      }
      await settle();
      assert.deepEqual([gate.status, reported.mock.calls.map((call) => call.arguments)], ["closed", []]);
      assert.ok(closes <= 2, String(closes));
      assert.equal(late, name === "a" ? 1 : 0);
    });
  }
});

describe("subscribe", () => {
  it("leaves no listener and no status when its handlers are removed another way", async () => {
    await up();
    const { signal } = new AbortController();
    const handler = () => {};
    const subscriptions = ["a", "b"].map((pattern) => gate.subscribe(pattern, { signal }, handler));
    gate.off("a", handler);
    assert.deepEqual([getEventListeners(signal, "abort").length, subscriptions[0].status], [1, "idle"]);
    gate.subscribe("b", () => {});
    gate.off("b", handler);
    assert.deepEqual([getEventListeners(signal, "abort").length, subscriptions[1].status], [0, "idle"]);
    await assert.rejects(subscriptions[1].ready, { code: "disconnected" });
    gate.subscribe("c", { signal }, handler);
    gate.off();
    assert.equal(getEventListeners(signal, "abort").length, 0);
  });

  it("makes no unhandled rejection of a `ready` that is only read", async () => {
    open().on("delivery:error", () => {});
    await gateway.welcome();
    const unhandled = [];
    const note = (error) => unhandled.push(error);
    process.on("unhandledRejection", note);
    const { ready } = gate.subscribe("a", () => {});
    await gateway.answer("subscribe", { ok: false, error: { code: "forbidden", message: "no", retry: false } });
    for (let turn = 0; turn < 2; turn++) await settle();
    process.off("unhandledRejection", note);
    assert.deepEqual(unhandled, []);
    await assert.rejects(ready, { code: "forbidden" });
  });

  it("makes two subscriptions of one handler, each with its own end", async () => {
    await up();
    const handler = record("h");
    const [first, second] = [gate.subscribe("a", handler), gate.subscribe("a", handler)];
    gateway.event("a", 1, 101);
    first.close();
    gateway.event("a", 2, 102);
    second.close();
    gateway.event("a", 3, 103);
    assert.deepEqual(calls.map(([, data]) => data), [1, 1, 2]);
  });

  it("takes a signal as an EventTarget does: aborted before, nothing happens; closed by hand, no listener is left", async () => {
    await up();
    const handler = mock.fn();
    const aborted = gate.subscribe("a", { signal: AbortSignal.abort() }, handler);
    assert.equal(aborted.status, "idle");
    await assert.rejects(aborted.ready, { code: "disconnected" });
    const { signal } = new AbortController();
    const closed = gate.subscribe("b", { signal }, handler);
    assert.equal(getEventListeners(signal, "abort").length, 1);
    closed.close();
    closed.close();
    assert.equal(getEventListeners(signal, "abort").length, 0);
    await settle();
    assert.deepEqual([gate.state.subscriptions, gateway.requests], [{}, []]);
  });
});

describe("an error", () => {
  it("keeps its cause", async () => {
    const mine = new Error("no network");
    const refusals = [];
    open({ token: () => Promise.reject(mine) }).on("connection:refused", (error) => refusals.push(error));
    await gateway.until(() => refusals.length > 0);
    assert.equal(refusals[0].code, "token_unavailable");
    assert.equal(refusals[0].cause, mine);
    const loop = {};
    loop.loop = loop;
    await assert.rejects(gate.publish("a", loop), { code: "not_serializable", parts: { path: "$.loop", reason: "a cycle" } });
  });

  it("has no cause where there is none", () => {
    assert.throws(() => open().subscribe("a..b", () => {}), (error) => error.code === "invalid_pattern" && !("cause" in error));
  });

  it("rejects those that wait to be ready in a namespace that is not served", async () => {
    open().on("connection:refused", () => {});
    const { ready } = gate.subscribe("a", () => {});
    const rejected = assert.rejects(ready, { name: "HeadgateError", code: "refused" });
    await gateway.refuseConnect(undefined, 1, "Unable to connect");
    await rejected;
    assert.equal(gate.status, "refused");
  });

  it("refuses a wrong address at once", () => {
    for (const url of ["example.com", "http://", "//x", "file:///home/ann/page.html", "about:blank", "ftp://example.com"]) assert.throws(() => connect(url), (error) => error.code === "invalid_address" && error.parts.url === url, url);
  });

  it("says that there is no page to take an address from, as while a server renders", () => {
    assert.throws(() => connect(), { code: "invalid_address", message: /^connect\(\) was given no address, and there is no page to take one from\. Where a server renders the page, connect in the browser only\./ });
    globalThis.location = /** @type {any} */ ({ href: "about:srcdoc" });
    try {
      assert.throws(() => connect(), { code: "invalid_address", message: /^connect\(\) was given no address, and this page has none to take \(about:srcdoc\)\. Give an origin/ });
    } finally {
      Reflect.deleteProperty(globalThis, "location");
    }
  });

  it("refuses an address of which a part would be dropped", () => {
    for (const url of ["https://example.com/gateway", "wss://example.com?token=t", "https://example.com/#a", "https://ana:secret@example.com"]) {
      assert.throws(() => connect(url), { code: "invalid_address", parts: { url, reason: "more than an origin" } });
    }
  });

  it("takes an address of either kind for the same gateway", () => {
    for (const [url, address] of [
      ["wss://http.example.com", "https://http.example.com"], ["ws://myhttpd.local", "http://myhttpd.local"], ["wss://example.com:443/", "https://example.com"], ["ws://example.com:443", "http://example.com:443"],
      ["HTTPS://Example.COM:443", "https://example.com"], ["ws://[::1]:8000", "http://[::1]:8000"], ["https://bücher.example", "https://xn--bcher-kva.example"],
    ]) {
      const made = connect(url, { autoConnect: false, namespace: "/orders" });
      assert.equal(made.address, `${address}/orders`);
      made.close();
    }
  });
});

describe("the status", () => {
  /** Record each change as "previous → status: reason". */
  function noted(options) {
    const changes = [];
    open(options).on("status:change", ({ status, previous, reason }) => changes.push(`${previous} → ${status}: ${reason}`));
    return changes;
  }

  it("is up while the gateway takes requests, from the welcome on, and also while it catches up or moves", async () => {
    open({});
    assert.equal(gate.isUp, false);
    await gateway.welcome();
    assert.deepEqual([gate.status, gate.isUp], ["live", true]);
    gateway.event("a", 1, 102, { replayed: true });
    assert.deepEqual([gate.status, gate.isUp], ["catching_up", true]);
    gateway.emit("status", { moving: { reason: "deploy", within_s: 1000 } });
    assert.deepEqual([gate.status, gate.isUp], ["moving", true]);
    gateway.cut();
    assert.deepEqual([gate.status, gate.isUp], ["waiting", false]);
    gate.close();
    assert.equal(gate.isUp, false);
  });

  it("is one word from the first attempt to the end, and each change is reported with its reason", async () => {
    const changes = noted({ autoConnect: false });
    assert.equal(gate.status, "idle");
    gate.open();
    assert.deepEqual([gate.status, gate.state.status, gate.state.connection], ["connecting", "connecting", "connecting"]);
    await gateway.welcome();
    assert.equal(gate.status, "live");
    gateway.cut();
    assert.equal(gate.status, "waiting");
    await gateway.welcome({ offset: 103 }, 2);
    assert.equal(gate.status, "catching_up");
    gateway.event("a", 1, 102, { replayed: true });
    gateway.event("a", 1, 103);
    assert.deepEqual([gate.status, gate.state.position, gate.state.connection], ["live", "live", "up"]);
    gateway.event("a", 1, 104, { replayed: true });
    assert.equal(gate.status, "catching_up");
    gateway.emit("status", { moving: { reason: "deploy", within_s: 1000 } });
    gateway.emit("cursor", { epoch: "e1", offset: 104 });
    assert.deepEqual([gate.status, gate.state.connection], ["moving", "up"]);
    gate.close();
    assert.equal(gate.status, "closed");
    assert.deepEqual(changes, [
      "idle → connecting: attempt",
      "connecting → live: join",
      "live → waiting: transport close",
      "waiting → connecting: attempt",
      "connecting → resuming: resume",
      "resuming → catching_up: return",
      "catching_up → live: follow",
      "live → catching_up: replay",
      "catching_up → moving: deploy",
      "moving → closed: closed",
    ]);
  });

  it("does not call it catching up when nothing was missed", async () => {
    const changes = noted();
    await gateway.welcome();
    gateway.cut();
    await gateway.letIn({}, 2);
    assert.deepEqual(changes.slice(-2), ["connecting → resuming: resume", "resuming → live: join"]);
  });

  it("says why it was refused, until open() tries again", async () => {
    const changes = noted();
    let refusal;
    gate.on("connection:refused", ({ message }) => (refusal = message));
    await gateway.refuseConnect({ code: "unauthorized", message: "expired", retry: false });
    await settle();
    assert.equal(gate.status, "refused");
    gate.open();
    await settle();
    assert.deepEqual(changes.slice(1), [`connecting → refused: ${refusal}`, "refused → connecting: attempt"]);
  });

  it("is another one for each subscription", async () => {
    open();
    const first = gate.subscribe("a", () => {});
    assert.equal(first.status, "wanted");
    await gateway.welcome();
    assert.equal(first.status, "active");
    const [second, same] = [gate.subscribe("b", () => {}), gate.subscribe("a", () => {})];
    await gateway.until(() => gateway.requests.length === 1);
    assert.deepEqual([second.status, same.status], ["requested", "active"]);
    await gateway.answer("subscribe", { ok: false, error: { code: "forbidden", message: "no", retry: false } });
    await assert.rejects(second.ready, { code: "forbidden" });
    assert.equal(second.status, "refused");
    same.close();
    assert.deepEqual([first.status, same.status], ["active", "idle"]);
    gateway.cut();
    assert.equal(first.status, "suspended");
    gate.close();
    assert.equal(first.status, "idle");
  });
});

describe("a sign of life by socket.io-client", () => {
  /** The page's listeners. @type {Record<string, () => void>} */
  let page;

  beforeEach(() => {
    page = {};
    Object.assign(globalThis, { addEventListener: (name, listener) => (page[name] = listener) });
  });

  afterEach(() => Reflect.deleteProperty(globalThis, "addEventListener"));

  it("is any answer to a request that changes nothing", async () => {
    await up();
    page.offline();
    await gateway.answer("unsubscribe", { ok: false, error: { code: "invalid_request", message: "no" } });
    await settle();
    assert.equal(gate.status, "live");
  });

  it("is missed for this connection alone", async () => {
    await up();
    page.offline();
    await gateway.until(() => gateway.requests.length === 1);
    gateway.requests.shift().acknowledge(new Error("operation has timed out"));
    await gateway.welcome({}, 2);
    page.offline();
    await gateway.until(() => gateway.requests.length === 1);
    const [{ acknowledge }] = gateway.requests.splice(0);
    await gateway.comeBack(3);
    acknowledge(new Error("socket has been disconnected"));
    await settle();
    assert.deepEqual([gate.status, gateway.attempts], ["live", 3]);
  });
});

describe("a busy page", () => {
  /** A handler that keeps the page busy in the event of offset 101, in which the rest arrives. */
  const busyAt101 = (record, arrive) => (data, event) => {
    record("h")(data, event);
    if (event.offset === 101) arrive();
  };

  it("leaves when as much waits as it holds, dispatches all of it, and resumes after it", async () => {
    const notices = [];
    open({ inboxLimit: 3 }).on("a", busyAt101(record, () => {
      for (const offset of [102, 103, 104, 105]) gateway.event("a", null, offset);
    }));
    gate.on("delivery:backpressure", ({ where, state, queued, discarded }) => notices.push([where, state, queued, discarded]));
    gate.on("connection:down", ({ reason }) => notices.push(reason));
    await gateway.welcome();
    gateway.event("a", null, 101);
    assert.deepEqual(notices, ["the page is too slow", ["browser", "on", 3, 0], ["browser", "off", 0, 0]]);
    await gateway.welcome({ offset: 105 }, 2);
    assert.deepEqual(gateway.connects[1].resume, { epoch: "e1", offset: 104 });
    gateway.event("a", null, 105, { replayed: true });
    assert.deepEqual(calls.map(([, , offset]) => offset), [101, 102, 103, 104, 105]);
  });

  it("says so when it is the token that does not come in time", async () => {
    for (const isShort of [true, false]) {
      const refused = [];
      let isAsked = false;
      const token = () => new Promise(() => (isAsked = true));
      open(isShort ? { token, connectTimeoutMs: 5 } : { token }).on("connection:refused", ({ code, parts }) => refused.push(`${code}: ${parts.reason}`));
      await gateway.until(() => isAsked);
      if (!isShort) gateway.fail(); // as a gateway does after its handshake_deadline_s, which is shorter by default
      await gateway.until(() => refused.length > 0);
      assert.equal(refused[0], "unreachable: no token in time");
      gate.close();
    }
  });

  it("does not call a gateway unreachable whose welcome waits for the page", async () => {
    const refused = [];
    open({ connectTimeoutMs: 20 }).on("connection:refused", ({ code }) => refused.push(code));
    await gateway.until(() => gateway.connects.length === 1);
    performance.now.mock.mockImplementation((() => {
      let nowMs = 0;
      return () => (nowMs += 1000);
    })());
    const turns = [];
    mock.method(globalThis, "setImmediate", (act) => turns.push(act));
    await gateway.welcome();
    // Longer than the attempt may take, by a timer that was started later.
    await new Promise((resolve) => setTimeout(resolve, 40));
    assert.deepEqual([refused, gate.state.connection], [[], "connecting"]);
    performance.now.mock.mockImplementation(() => 0);
    mock.restoreAll();
    for (const act of turns) act();
    assert.equal(gate.state.connection, "up");
  });
});

describe("gaps", () => {
  const GAP = { patterns: ["a.#"], from: 101, to: 104, count: 2, bytes: 9, reason: "overflow", recoverable: true };
  const meta = (offset) => ({ id: `i${offset}`, time: 1, offset, replayed: true });
  const reports = [];
  const resyncs = [];

  /** A gate with handlers of "a.#", by default one that lets go of events. */
  async function openDropping(options = {}, handler = () => {}) {
    const { resync = (gap) => resyncs.push(gap), ...wishes } = options;
    reports.length = resyncs.length = 0;
    open({ resync }).on("a.#", handler, null, { overflow: "drop", ...wishes });
    gate.on("delivery:gap", (gap) => reports.push(["gap", gap.repairing, gap.lost, gap.count]));
    gate.on("delivery:resumed", ({ repaired }) => repaired && reports.push(["resumed", repaired]));
    await gateway.welcome();
  }

  it("are repaired from the log, page by page, and the end is reported", async () => {
    const got = [];
    await openDropping({}, (data, { offset, replayed }) => got.push([data, offset, replayed]));
    gateway.emit("gap", GAP);
    gateway.event("a.later", "later", 105);
    assert.deepEqual(await gateway.answer("replay", { ok: true, events: [["a.b", 1, meta(101)]], next: 103 }), { pattern: "a.#", from: 101, to: 104, epoch: "e1" });
    assert.deepEqual(await gateway.answer("replay", { ok: true, events: [["a.c", 2, meta(104)]], next: null }), { pattern: "a.#", from: 103, to: 104, epoch: "e1" });
    await gateway.until(() => reports.length === 2);
    assert.deepEqual(got, [["later", 105, false], [1, 101, true], [2, 104, true]]);
    assert.deepEqual(reports, [["gap", true, false, 2], ["resumed", { patterns: ["a.#"], from: 101, to: 104, count: 2 }]]);
    assert.deepEqual([gate.state.gaps, gate.state.missed, resyncs], [1, 0, []]);
  });

  it("are repaired one at a time, each event once, without events that a stronger policy has brought", async () => {
    const got = [];
    await openDropping({}, (data) => got.push(data));
    const both = (data) => got.push(data);
    gate.on("a.b.*", both, null, { overflow: "drop" }).on("a.safe", () => {});
    await gateway.answer("subscribe");
    await gateway.answer("subscribe");
    gateway.emit("gap", { ...GAP, patterns: ["a.#", "a.b.*"], count: 1 });
    gateway.emit("gap", { ...GAP, from: 110, to: 110, count: 1 });
    await gateway.until(() => gateway.requests.length > 0);
    assert.equal(gateway.requests.length, 1);
    const page = { ok: true, events: [["a.b.c", 1, meta(101)], ["a.safe", "had", meta(102)]], next: null };
    await gateway.answer("replay", page);
    assert.deepEqual(await gateway.answer("replay", { ...page, events: page.events.slice(0, 1) }), { pattern: "a.b.*", from: 101, to: 104, epoch: "e1" });
    assert.deepEqual(await gateway.answer("replay", { ok: true, events: [["a.z", 2, meta(110)]], next: null }), { pattern: "a.#", from: 110, to: 110, epoch: "e1" });
    await gateway.until(() => got.length === 3);
    assert.deepEqual(got, [1, 1, 2]);
  });

  it("are repaired where the gateway left them out before it knew of a stronger policy", async () => {
    const got = [];
    await openDropping({}, (data) => got.push(data));
    gate.on("a.#", () => {});
    await gateway.until(() => gateway.requests.length === 1);
    gateway.emit("gap", { ...GAP, count: 1 });
    await gateway.answer("subscribe");
    await gateway.answer("replay", { ok: true, events: [["a.b", 1, meta(101)]], next: null });
    await gateway.until(() => reports.length === 2);
    assert.deepEqual([got, resyncs], [[1], []]);
  });

  it("go on being repaired after the connection broke", async () => {
    const got = [];
    await openDropping({}, (data) => got.push(data));
    gateway.emit("gap", GAP);
    await gateway.until(() => gateway.requests.length === 1);
    await gateway.comeBack();
    await gateway.answer("replay", { ok: true, events: [["a.b", 1, meta(101)], ["a.b", 2, meta(102)]], next: null });
    await gateway.until(() => reports.length === 2);
    assert.deepEqual([got, resyncs], [[1, 2], []]);
  });

  it("hide no event that has the place of a repaired one in a log that has lost that", async () => {
    const got = [];
    await openDropping({}, (data) => got.push(data));
    gateway.emit("gap", GAP);
    await gateway.answer("replay", { ok: true, events: [["a.b", "lost", meta(102)], ["a.b", "kept", meta(101)]], next: null });
    await gateway.until(() => reports.length === 2);
    // It resumes from 100, which both logs have, so the gateway has nothing to report.
    gateway.cut();
    gate.open();
    await gateway.welcome({ resumed: true, from: { epoch: "e2", offset: 100 }, epoch: "e2" }, 2);
    gateway.event("a.b", "again", 101, { id: "i101" });
    gateway.event("a.b", "new", 102, { id: "another" });
    await settle();
    assert.deepEqual(got, ["lost", "kept", "new"]);
    assert.deepEqual(reports.at(-1), ["gap", false, true, 1]);
    assert.deepEqual(resyncs.map(({ from, to, reason, epoch }) => [from, to, reason, epoch]), [[102, 102, "rolled_back", "e2"]]);
  });

  for (const [by, pass] of /** @type {[string, () => void][]} */ ([
    ["event", () => gateway.event("a.b", "later", 103)],
    ["cursor", () => gateway.emit("cursor", { epoch: "e2", offset: 103 })],
  ])) {
    for (const epoch of ["e1", "e2"]) {
      it(`are reported again ${epoch === "e2" ? "" : "not "}where a repaired one does not come before the next ${by} of a log that continues in ${epoch}`, async () => {
        await openDropping();
        gateway.emit("gap", GAP);
        await gateway.answer("replay", { ok: true, events: [["a.b", 1, meta(102)], ["a.b", 2, meta(101)]], next: null });
        await gateway.until(() => reports.length === 2);
        gateway.cut();
        gate.open();
        await gateway.welcome({ resumed: true, from: { epoch, offset: 100 }, epoch }, 2);
        gateway.event("a.b", 2, 101);
        pass();
        gateway.event("a.b", 3, 104);
        await settle();
        assert.deepEqual(resyncs.map(({ from, to, reason, epoch: of }) => [from, to, reason, of]), epoch === "e2" ? [[102, 102, "rolled_back", "e2"]] : []);
      });
    }
  }

  it("ask for one resync when the log has not all of it any more", async () => {
    await openDropping();
    gateway.emit("gap", GAP);
    await gateway.answer("replay", { ok: true, events: [["a.b", 1, meta(104)]], next: null });
    await gateway.until(() => reports.length === 3);
    assert.deepEqual(reports.at(-1), ["gap", false, true, 1]);
    assert.deepEqual(resyncs.map(({ recoverable, lost, count }) => [recoverable, lost, count]), [[false, true, 1]]);
    assert.equal(gate.state.missed, 1);
  });

  it("ask for one resync when the repair is refused, and when there is too much to repair", async () => {
    await openDropping();
    gateway.emit("gap", GAP);
    await gateway.answer("replay", { ok: false, error: { code: "forbidden", message: "no", retry: false } });
    await gateway.until(() => resyncs.length === 1);
    gateway.emit("gap", { ...GAP, to: 20_000 });
    await settle();
    assert.equal(resyncs.length, 2);
    assert.deepEqual(reports.at(-1), ["gap", false, true, 2]);
    assert.equal(gateway.requests.length, 0);
  });

  it("are repaired after a gap whose resync has thrown, and what it has thrown is reported", async () => {
    const errors = [];
    mock.method(console, "error", (error) => errors.push(error.message));
    await openDropping({
      resync() {
        throw Error("of the application");
      },
    });
    gateway.emit("gap", GAP);
    gateway.emit("gap", { ...GAP, from: 106, to: 107, count: 1 });
    await gateway.answer("replay", { ok: false, error: { code: "forbidden", message: "no", retry: false } });
    await gateway.answer("replay", { ok: true, events: [["a.b", 1, meta(106)]], next: null });
    await gateway.until(() => reports.at(-1)[0] === "resumed");
    assert.deepEqual(errors, ["of the application"]);
  });

  it("are left alone where the subscription says so, and can be replayed by hand", async () => {
    await openDropping({ repair: false });
    gateway.emit("gap", GAP);
    assert.deepEqual([reports, resyncs], [[["gap", false, false, 2]], []]);
    // Of a gap without offsets: the gateway names the fault.
    const refused = assert.rejects(gate.replay("a.#", { ...GAP, from: null }), { code: "invalid_request" });
    await gateway.answer("replay", { ok: false, error: { code: "invalid_request", message: "from: expected a whole number", retry: false } });
    await refused;
    const replayed = gate.replay("a.#", GAP);
    await gateway.answer("replay", { ok: true, events: [["a.b", 1, meta(101)]], next: null });
    assert.equal(await replayed, 1);
  });

  it("ask for a resync when they cannot be had again, and end the repair of a log that is gone", async () => {
    await openDropping();
    gateway.emit("gap", GAP);
    await gateway.until(() => gateway.requests.length === 1);
    gateway.emit("gap", { ...GAP, from: null, to: null, count: null, reason: "log_lost", recoverable: false });
    await gateway.answer("replay", { ok: true, events: [], next: null });
    await settle();
    assert.deepEqual([reports.length, resyncs.length], [2, 1]);
  });
});

describe("publishing", () => {
  it("leaves its own event out where it wants no echo, before and after the receipt, and gets those of others in order", async () => {
    open();
    const got = [];
    gate.on("a.*", (data) => got.push(data));
    gate.on("all", (name, data) => name.startsWith("a.") && got.push(`all ${data}`));
    await gateway.welcome();
    const options = { echo: false };
    for (const isFirst of [true, false]) {
      const published = gate.publish("a.b", "own", options);
      await gateway.until(() => gateway.requests.length === 1);
      const [{ body }] = gateway.requests;
      assert.match(body.id, /^[\w-]{32,}$/);
      assert.deepEqual(Object.keys(body), ["topic", "data", "id"]);
      const offset = isFirst ? 102 : 105;
      gateway.event("a.b", "before", offset - 1, { id: "other" });
      if (isFirst) gateway.event("a.b", "own", offset, { id: body.id });
      await gateway.answer("publish", { ok: true, epoch: "e1", offset, id: body.id, duplicate: false });
      assert.equal((await published).offset, offset);
      if (!isFirst) gateway.event("a.b", "own", offset, { id: body.id });
      gateway.event("a.b", "after", offset + 1, { id: "another" });
    }
    assert.deepEqual(got.filter((each) => !each.startsWith("all")), ["before", "after", "before", "after"]);
    assert.equal(got.length, 8);
    assert.equal(gate.state.offset, 106);
    const again = gate.publish("a.b", "own", { id: "mine" });
    await gateway.answer("publish", { ok: true, epoch: "e1", offset: 107, id: "mine" });
    await again;
    gateway.event("a.b", "own", 107, { id: "mine" });
    assert.deepEqual(got.slice(-2), ["own", "all own"]);
  });

  it("refuses data that is too large, in bytes of UTF-8, before it is sent", async () => {
    await up();
    const fits = "é".repeat(499);
    const publishing = gate.publish("a", fits);
    assert.equal((await gateway.answer("publish")).data, fits);
    await publishing;
    await assert.rejects(gate.publish("a", `${fits}x`), {
      code: "payload_too_large", retry: false, parts: { size: 1001, limit: 1000, where: "browser" },
    });
    assert.deepEqual(gateway.requests, []);
  });

  it("refuses data that is not JSON", async () => {
    await up();
    const cycle = {};
    cycle.self = cycle;
    for (const data of [undefined, () => {}, Number.NaN, [1, Infinity], 1n, cycle]) {
      await assert.rejects(gate.publish("a", data), { code: "not_serializable" });
    }
    await assert.rejects(gate.publish("a.*", 1), { code: "invalid_topic" });
  });

  it("gives each event an id of its own", async () => {
    await up();
    void gate.publish("a", 1);
    void gate.publish("a", 1);
    const ids = [await gateway.answer("publish"), await gateway.answer("publish")].map(({ id }) => id);
    assert.ok(ids.every((id) => /^\d+(-\d+){3}$/.test(id)) && ids[0] !== ids[1]);
  });

  it("says of each publish that was under way that it may have arrived, and by which id it can be tried again", async () => {
    await up();
    const sent = [gate.publish("a", 1, { id: "x" }), gate.publish("a", 2)];
    const [, { body }] = gateway.requests;
    gateway.cut();
    await assert.rejects(sent[0], { code: "outcome_unknown", retry: false, parts: { id: "x", topic: "a", reason: "disconnected" } });
    await assert.rejects(sent[1], { code: "outcome_unknown", parts: { id: body.id, topic: "a", reason: "disconnected" } });
    await gateway.welcome({}, 2);
    const again = gate.publish("a", 1, { id: "x" });
    assert.equal((await gateway.answer("publish", { ok: true, epoch: "e1", offset: 7, duplicate: true })).id, "x");
    assert.equal((await again).duplicate, true);
  });

  it("says of an ephemeral event under way that the connection broke: nothing recognises a second try", async () => {
    await up();
    const sent = gate.publish("a", 1, { ephemeral: true, echo: false });
    gateway.cut();
    await assert.rejects(sent, { code: "disconnected", retry: true });
  });

  describe("faster than the gateway takes", () => {
    let nowMs;

    beforeEach(() => {
      nowMs = 0;
      mock.timers.enable({ apis: ["setTimeout"] });
      mock.method(performance, "now", () => nowMs);
    });

    afterEach(() => mock.timers.reset());

    /** Let time pass, answer all sent requests, and keep their bodies. */
    const bodies = [];
    async function pass(ms) {
      for (const endMs = nowMs + ms; nowMs < endMs; nowMs += 10) {
        mock.timers.tick(10);
        await settle();
        for (const { body, acknowledge } of gateway.requests.splice(0)) {
          bodies.push(body);
          acknowledge(null, { ok: true });
        }
      }
    }

    /** Open at the gateway's default limits. Return the requests of each second. */
    async function openLimited() {
      const sent = [];
      open();
      await settle();
      await gateway.welcome({ limits: { max_payload_bytes: 1000, inbound_per_s: 50, inbound_burst: 100 } });
      const timeout = gateway.timeout;
      gateway.timeout = () => {
        sent.push(nowMs);
        return timeout.call(gateway);
      };
      return sent;
    }

    it("sends 60 events a second at the gateway's rate, and refuses at once what could not be sent in time", async () => {
      const sent = await openLimited();
      const outcomes = { published: 0, limit_reached: 0 };
      for (let nth = 0; nth < 60 * 60; nth++) {
        gate.publish("a", nth).then(() => outcomes.published++, ({ code, retry, parts }) => {
          assert.ok(retry && parts.name === "inbound_per_s" && parts.limit === 50 && parts.retryAfterS >= 1);
          outcomes[code]++;
        });
        await pass(16);
      }
      await pass(11_000);
      assert.equal(outcomes.published + outcomes.limit_reached, 3600);
      assert.equal(outcomes.published, sent.length);
      // Never more than the gateway's bucket holds.
      let tokens = 100;
      for (const [nth, atMs] of sent.entries()) {
        tokens = Math.min(100, tokens + ((atMs - (sent[nth - 1] ?? 0)) * 50) / 1000) - 1;
        assert.ok(tokens >= 0, `request ${nth}`);
      }
      assert.ok(outcomes.limit_reached > 1000 && sent.length > 60 * 15);
    });

    it("sends what users were shown at the same rate, and loses none of it that can be sent in time", async () => {
      const sent = await openLimited();
      let seen = 0;
      bodies.length = 0;
      // One list, which is used again while earlier calls wait for their turns.
      const ids = [];
      for (let nth = 0; nth < 200; nth++) {
        ids[0] = `i${nth}`;
        gate.seen(ids).then(() => seen++);
      }
      await pass(10);
      assert.equal(sent.length, 40);
      await pass(9000);
      assert.deepEqual([sent.length, seen, new Set(bodies.map((body) => body.ids[0])).size], [200, 200, 200]);
    });

    it("refuses an ephemeral event at once rather than send it late", async () => {
      await openLimited();
      const codes = [];
      for (let nth = 0; nth < 50; nth++) gate.publish("a", nth, { ephemeral: true }).catch(({ code }) => codes.push(code));
      await settle();
      assert.ok(gateway.requests.every(({ body }) => body.ephemeral));
      assert.deepEqual([gateway.requests.length, codes], [40, Array(10).fill("limit_reached")]);
    });

    it("does not keep a subscription waiting for the events before it", async () => {
      await openLimited();
      for (let nth = 0; nth < 200; nth++) gate.publish("a", nth).catch(() => {});
      gate.on("b", () => {});
      await settle();
      assert.equal(gateway.requests.at(-1).name, "subscribe");
    });

    it("says of those that wait when the connection breaks that they were not sent", async () => {
      await openLimited();
      const codes = [];
      for (let nth = 0; nth < 60; nth++) gate.publish("a", nth).catch(({ code, retry }) => codes.push([code, retry]));
      gateway.cut();
      await settle();
      assert.deepEqual(codes.sort(), [...Array(20).fill(["disconnected", true]), ...Array(40).fill(["outcome_unknown", false])]);
    });

    it("reads a long part of the log page by page at the gateway's rate", async () => {
      const sent = await openLimited();
      const replayed = gate.replay("a", { from: 1, to: 500 });
      for (let page = 1; page <= 100; page++) {
        while (!gateway.requests.length) {
          nowMs += 10;
          mock.timers.tick(10);
          await settle();
        }
        gateway.requests.shift().acknowledge(null, { ok: true, events: [], next: page < 100 ? page + 1 : null });
        await settle();
      }
      assert.deepEqual([await replayed, sent.length], [0, 100]);
      assert.ok(sent.at(-1) - sent[39] >= 58 * 50);
    });
  });

  it("rejects with the gateway's refusal, or because there is no connection", async () => {
    open();
    await assert.rejects(gate.publish("a", 1), { code: "disconnected", retry: true });
    await gateway.welcome();
    const publishing = gate.publish("a", 1);
    await gateway.answer("publish", { ok: false, error: { code: "forbidden", message: "no", retry: false, action: "publish" } });
    await assert.rejects(publishing, { code: "forbidden", message: /^no\. .*grant/, parts: { action: "publish" } });
  });
});

describe("iterating", () => {
  it("is over when it cannot be subscribed, after it has said why", async () => {
    open();
    const refusal = Error("no");
    mock.method(gate, "_subscribe", () => {
      throw refusal;
    });
    const iterator = events(gate, "a");
    await assert.rejects(iterator.next(), refusal);
    assert.deepEqual(await iterator.next(), { value: undefined, done: true });
  });

  it("is forgotten when it was left, though its pattern has other handlers", async () => {
    open().on("a", () => {});
    const ended = mock.method(gate, "_ended");
    const iterator = events(gate, "a");
    void iterator.next();
    await gateway.welcome();
    void iterator.return();
    assert.equal(await ended.mock.calls[0].result, true);
  });

  it("is bounded, and reports which events it discarded", async () => {
    const gaps = [];
    open().on("delivery:gap", (gap) => gaps.push([gap.count, gap.from, gap.to, gap.where]));
    const iterator = events(gate, "a", { limit: 2 });
    const first = iterator.next();
    await gateway.welcome();
    for (let offset = 101; offset <= 106; offset++) gateway.event("a", null, offset);
    assert.equal((await first).value.offset, 101);
    assert.equal((await iterator.next()).value.offset, 105);
    assert.deepEqual(gaps, [[3, 102, 104, "iterator"]]);
    for (let offset = 107; offset <= 109; offset++) gateway.event("a", null, offset);
    assert.equal((await iterator.next()).value.offset, 108);
    assert.deepEqual(gaps[1], [2, 106, 107, "iterator"]);
    assert.equal((await iterator.next()).value.offset, 109);
    await iterator.return();
  });

  it("has the pattern subscribed in the first turn of the loop, until the loop is left", async () => {
    open();
    const iterator = events(gate, "a.#");
    assert.deepEqual(Object.keys(gate.state.subscriptions), []);
    const first = iterator.next();
    assert.deepEqual(Object.keys(gate.state.subscriptions), ["a.#"]);
    await gateway.welcome();
    gateway.event("a.b", 1, 101);
    assert.equal((await first).value.data, 1);
    await iterator.return();
    await gateway.answer("unsubscribe");
    assert.deepEqual(Object.keys(gate.state.subscriptions), []);
    assert.deepEqual(await iterator.next(), { value: undefined, done: true });
  });

  it("is left at once though a turn waits for an event", async () => {
    await up();
    const iterator = events(gate, "a");
    const turns = [iterator.next(), iterator.next()];
    assert.deepEqual(await iterator.return(), { value: undefined, done: true });
    assert.deepEqual(await Promise.all(turns), [{ value: undefined, done: true }, { value: undefined, done: true }]);
    const thrown = events(gate, "a");
    await assert.rejects(thrown.throw(new Error("mine")), { message: "mine" });
  });

  it("throws a refusal into the loop, after the events that have come", async () => {
    open().on("delivery:error", () => {});
    const refusal = { code: "forbidden", message: "not allowed", retry: false };
    const iterator = events(gate, "a");
    const first = iterator.next();
    await gateway.welcome();
    gateway.event("a", 1, 101);
    gateway.event("a", 2, 102);
    gateway.emit("status", { ended: [{ pattern: "a", error: refusal }] });
    assert.equal((await first).value.data, 1);
    await settle();
    assert.equal((await iterator.next()).value.data, 2);
    await assert.rejects(iterator.next(), { code: "forbidden" });
    assert.equal((await iterator.next()).done, true);
  });

  it("ends when the gate is closed or the signal says so", async () => {
    open();
    const leaving = new AbortController();
    const [one, two] = [events(gate, "a", { signal: leaving.signal }), events(gate, "b")];
    const ends = [one.next(), two.next()];
    leaving.abort();
    assert.equal((await ends[0]).done, true);
    gate.close();
    assert.equal((await ends[1]).done, true);
  });
});
