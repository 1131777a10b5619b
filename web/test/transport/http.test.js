/** The transport over HTTP (src/http.js) and its promises (src/transport.js): a scripted `fetch`, and a clock that the tests move. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it, mock } from "node:test";
// A private module, which is in no file of dist that Node loads by itself.
import { createHttp } from "../../src/transport/http.js";

const ADDRESS = "https://gateway.test/notifications";
const HELD_BACK_MS = 4000;
const TOGETHER_MS = 20;
const AGAIN_MS = 200;
const bytes = (text) => new TextEncoder().encode(text);

/** @type {Asked[]} every request that was sent, in order */
let asked;
/** Calls of the owner, in order: [name, …arguments]. */
let calls;
let transport;
let nowMs;

/** A request, and its answer. */
class Asked {
  constructor(url, { signal, body, headers, redirect }) {
    Object.assign(this, { url: new URL(url), redirect, signal, body: JSON.parse(body), accept: headers.Accept });
    this.response = new Promise((resolve, reject) => {
      this.resolve = resolve;
      signal.addEventListener("abort", () => reject(new DOMException("aborted", "AbortError")));
    });
  }

  get given() {
    return this.signal.aborted;
  }

  /** The head of a stream, or of another answer with a body that comes later. */
  async begin(type = "text/event-stream", status = 200) {
    const body = new ReadableStream({
      start: (controller) => {
        this.body_ = controller;
        this.signal.addEventListener("abort", () => controller.error(new DOMException("aborted", "AbortError")));
      },
    });
    this.resolve(new Response(body, { status, headers: { "Content-Type": type } }));
    await turn();
  }

  async write(data) {
    this.body_.enqueue(typeof data === "string" ? bytes(data) : data);
    await turn();
  }

  async end() {
    this.body_.close();
    await turn();
  }

  async whole(status, body, headers = {}) {
    const isText = typeof body === "string";
    this.resolve(new Response(isText ? body : JSON.stringify(body), { status, headers: { "Content-Type": isText ? "text/html" : "application/json", ...headers } }));
    await turn();
  }

  /** Begin a stream and welcome the client, with each subscription granted. */
  async welcome(offset = 100, more = {}) {
    await this.begin();
    await this.write(block("welcome", welcomeOf(this, offset, more), offset));
  }
}

const welcomeOf = ({ body }, offset, more) => ({
  epoch: "e",
  offset,
  from: null,
  resumed: body.resume ? true : null,
  user: "ann",
  subscriptions: body.subscriptions.map(({ pattern }) => ({ pattern, ok: true })),
  ...more,
});
const block = (name, body, offset) => `${offset === undefined ? "" : `id: e:${offset}\n`}${name ? `event: ${name}\n` : ""}data: ${JSON.stringify(body)}\n\n`;
const event = (offset, data = offset) => block("", { topic: "a", data, id: `i${offset}`, time: 1, offset }, offset);

async function turn() {
  for (let n = 0; n < 5; n++) await new Promise((resolve) => setImmediate(resolve));
}

async function pass(ms) {
  nowMs += ms;
  mock.timers.tick(ms);
  await turn();
}

/** Connect with these subscriptions; return the first request. */
async function open(subscriptions = [{ pattern: "a" }], resume = undefined) {
  transport.connect();
  await turn();
  calls.find(([name]) => name === "greet")[1]({ token: "t", subscriptions, resume });
  await turn();
  return asked.at(-1);
}

/** The same, and be welcomed. */
async function joined(...wanted) {
  const stream = await open(...wanted);
  await stream.welcome();
  return stream;
}

/** Begin a request; return where its outcome will be noted. */
function request(name, body, timeoutMs = 10_000) {
  const outcome = { settled: undefined };
  transport.request(name, body, timeoutMs).then(
    (answer) => (outcome.settled = answer),
    (error) => (outcome.settled = error),
  );
  return outcome;
}

/** The same, and have the next stream ask. */
async function asking(...given) {
  const outcome = request(...given);
  await pass(TOGETHER_MS);
  return outcome;
}

const named = (name) => calls.filter(([each]) => each === name);
const offsets = () => named("arrived").filter(([, name]) => name === "event").map(([, , args]) => args[2].offset);

/** A connection ends at most once, and nothing comes after that. */
function assertPromises() {
  const ends = calls.map(([name]) => name === "lost" || name === "refused");
  const first = ends.indexOf(true);
  assert.ok(first < 0 || first === calls.length - 1, `behind the end: ${JSON.stringify(calls.slice(first))}`);
  assert.equal(named("greet").length, 1);
}

beforeEach(() => {
  [asked, calls, nowMs] = [[], [], 1000];
  mock.timers.enable({ apis: ["setTimeout"] });
  mock.method(performance, "now", () => nowMs);
  mock.method(globalThis, "fetch", (url, options) => {
    asked.push(new Asked(url, options));
    return asked.at(-1).response;
  });
  const note = (name) => (...args) => calls.push([name, ...args]);
  transport = createHttp(ADDRESS, { path: "/socket.io" }, { greet: note("greet"), arrived: note("arrived"), lost: note("lost"), refused: note("refused") });
});

afterEach(() => {
  transport.close();
  mock.timers.reset();
  mock.restoreAll();
});

describe("a stream over HTTP", () => {
  it("asks with the whole object of a CONNECT, and gives what comes to its owner in order", async () => {
    const stream = await open([{ pattern: "a", since: { offset: 3 } }], { epoch: "e", offset: 7 });
    assert.equal(stream.url.href, "https://gateway.test/socket.io/stream?namespace=notifications");
    assert.deepEqual(stream.body, { token: "t", subscriptions: [{ pattern: "a", since: { offset: 3 } }], resume: { epoch: "e", offset: 7 }, requests: [] });
    await stream.welcome(9);
    await stream.write(event(8) + block("gap", { reason: "trimmed", from: 9, to: 10 }) + event(11));
    assert.deepEqual(named("arrived").map(([, name]) => name), ["welcome", "event", "gap", "event"]);
    assertPromises();
  });

  for (const size of [1, 2, 3, 7]) {
    it(`is read though it is cut anywhere, also within a character (pieces of ${size})`, async () => {
      const stream = await joined();
      const data = bytes(`: \n\n${event(101, "é€😀\n\n")}${event(102)}`);
      for (let at = 0; at < data.length; at += size) stream.body_.enqueue(data.slice(at, at + size));
      await turn();
      await turn();
      assert.deepEqual(named("arrived").slice(1).map(([, , args]) => args[1]), ["é€😀\n\n", 102]);
    });
  }

  it("that ends within a block gives nothing of the block", async () => {
    const stream = await joined();
    await stream.write(event(101) + event(102).slice(0, -1));
    await stream.end();
    assert.deepEqual(offsets(), [101]);
    assert.deepEqual(named("lost"), [["lost", "transport close"]]);
    assertPromises();
  });

  it("continues after the last whole block when subscriptions change", async () => {
    const stream = await joined();
    await stream.write(event(101) + event(102).slice(0, -5));
    const outcome = await asking("subscribe", { pattern: "b", overflow: "drop", since: { offset: 50 } });
    assert.ok(stream.given);
    const second = asked[1];
    assert.deepEqual(second.body.resume, { epoch: "e", offset: 101 });
    assert.deepEqual(second.body.subscriptions, [{ pattern: "a" }, { pattern: "b", overflow: "drop", since: { offset: 50 } }]);
    await second.welcome(102, { subscriptions: [{ pattern: "a", ok: true }, { pattern: "b", ok: true, after: 50 }] });
    await second.write(event(102));
    assert.deepEqual(outcome.settled, { ok: true, pattern: "b", epoch: "e", offset: 102, after: 50 });
    assert.deepEqual(offsets(), [101, 102]);
    assert.equal(named("arrived").filter(([, name]) => name === "welcome").length, 1);
    await second.write(event(103));
    await asking("unsubscribe", { pattern: "a" });
    assert.deepEqual(asked[2].body.subscriptions, [{ pattern: "b", overflow: "drop" }], "its past was empty, or it would have come before 103");
    assertPromises();
  });

  it("continues a past that a change interrupts, until it is over", async () => {
    const since = () => asked.at(-1).body.subscriptions.map(({ since }) => since);
    const change = async () => {
      await asking("subscribe", { pattern: "c" });
      await asked.at(-1).welcome(100);
    };
    const stream = await open([{ pattern: "a", since: { last: 5 } }, { pattern: "b", since: { last: 9 } }]);
    await stream.welcome(100);
    await stream.write(block("message", { topic: "a", data: 1, id: "i41", time: 1, offset: 41, replayed: true }));
    await change();
    assert.deepEqual(since(), [{ epoch: "e", offset: 41 }, { last: 9 }, undefined]);
    await asked.at(-1).write(block("message", { topic: "b", data: 1, id: "i43", time: 1, offset: 43, replayed: true }));
    await change();
    assert.deepEqual(since(), [{ epoch: "e", offset: 41 }, { epoch: "e", offset: 43 }, undefined]);
    await asked.at(-1).write(event(101));
    await change();
    assert.deepEqual(since(), [undefined, undefined, undefined]);
  });

  it("asks for what two pasts of one pattern have together, and forgets one with its pattern", async () => {
    const stream = await open([{ pattern: "a", since: { last: 5 } }]);
    await stream.welcome(100);
    for (const [wish, together] of [[{ last: 3 }, { last: 5 }], [{ last: 7 }, { last: 7 }], [{ time: 1 }, { offset: 0 }]]) {
      await asking("subscribe", { pattern: "a", since: wish });
      assert.deepEqual(asked.at(-1).body.subscriptions, [{ pattern: "a", since: together }]);
      await asked.at(-1).welcome(100);
    }
    await asking("unsubscribe", { pattern: "a" });
    await asked.at(-1).welcome(100);
    await asking("subscribe", { pattern: "a" });
    assert.deepEqual(asked.at(-1).body.subscriptions, [{ pattern: "a" }]);
  });

  it("answers a change that comes while it opens with the next stream", async () => {
    await joined();
    const one = await asking("subscribe", { pattern: "b" });
    const two = request("subscribe", { pattern: "c" });
    await pass(TOGETHER_MS * 5);
    assert.equal(asked.length, 2, "the stream that opens is not cut");
    await asked[1].welcome();
    assert.equal(one.settled.ok, true);
    assert.equal(two.settled, undefined);
    await pass(TOGETHER_MS);
    await asked[2].welcome();
    assert.equal(two.settled.ok, true);
    assert.deepEqual(asked[2].body.subscriptions.map(({ pattern }) => pattern), ["a", "b", "c"]);
  });

  for (const names of [["subscribe", "unsubscribe", "subscribe"], ["subscribe", "subscribe"]]) {
    it(`gives each request for one pattern its own answer, in their order: ${names.join(", ")}`, async () => {
      await joined();
      const outcomes = names.map((name) => request(name, { pattern: "b" }));
      for (const [nth, name] of names.entries()) {
        await pass(TOGETHER_MS);
        assert.equal(asked.at(-1).body.subscriptions.some(({ pattern }) => pattern === "b"), name === "subscribe");
        await asked.at(-1).welcome();
        assert.deepEqual(outcomes.map(({ settled }) => settled?.ok), names.map((_, at) => (at <= nth ? true : undefined)));
      }
    });
  }

  it("reports which of several subscriptions is refused, and does not ask for it again", async () => {
    await joined();
    const outcomes = ["b", "c"].map((pattern) => request("subscribe", { pattern }));
    await pass(TOGETHER_MS);
    const error = { code: "forbidden", message: "no" };
    await asked[1].welcome(100, { subscriptions: [{ pattern: "a", ok: true }, { pattern: "b", ok: false, error }, { pattern: "c", ok: true }] });
    assert.deepEqual(outcomes.map(({ settled }) => [settled.ok, settled.error]), [[false, error], [true, undefined]]);
    await asking("refresh", { token: "u" });
    assert.deepEqual(asked[2].body.subscriptions.map(({ pattern }) => pattern), ["a", "c"]);
    assert.equal(asked[2].body.token, "u");
  });

  it("reports to its owner which subscriptions have ended with the previous stream, and does not ask for them by itself", async () => {
    await joined();
    await asking("subscribe", { pattern: "b" });
    const error = { code: "authorize_failed", message: "no", retry: true };
    await asked[1].welcome(100, { subscriptions: [{ pattern: "a", ok: false, error }, { pattern: "b", ok: true }] });
    assert.deepEqual(named("arrived").at(-1), ["arrived", "status", [{ ended: [{ pattern: "a", error }] }]]);
    await asking("subscribe", { pattern: "c" });
    assert.deepEqual(asked[2].body.subscriptions.map(({ pattern }) => pattern), ["b", "c"]);
  });

  it("names its place when it asks for an inbox, as any gateway may answer", async () => {
    await joined([], { epoch: "e1", offset: 7 });
    void request("inbox", { limit: 5 });
    void request("seen", { ids: ["a"] });
    const [inbox, seen] = asked.slice(1).map(({ body }) => body.body);
    assert.equal(inbox.limit, 5);
    assert.match(inbox.epoch, /./);
    assert.equal(typeof inbox.offset, "number");
    assert.deepEqual(seen, { ids: ["a"] });
  });

  it("settles what waits when it ends, and calls its owner once", async () => {
    await joined();
    const outcomes = [request("subscribe", { pattern: "b" })];
    await pass(TOGETHER_MS);
    outcomes.push(request("subscribe", { pattern: "c" }), request("publish", { topic: "a" }));
    // The second request without a stream went out between the first attempt and the others.
    for (const nth of [1, 3, 4]) {
      asked[nth].resolve(Promise.reject(new TypeError("network")));
      await turn();
      await pass(AGAIN_MS);
    }
    assert.equal(named("lost").length, 1);
    // A gateway may answer a request without a stream all the same.
    assert.deepEqual(outcomes.map(({ settled }) => settled instanceof Error), [true, true, false]);
    await pass(60_000);
    assert.ok(outcomes[2].settled instanceof Error);
    assertPromises();
  });

  it("asks again for the stream of a change where a gateway behind the proxy is gone", async () => {
    await joined();
    const outcome = await asking("subscribe", { pattern: "b" });
    await asked[1].whole(502, "<html>");
    assert.equal(asked.length, 2, "not at once");
    await pass(AGAIN_MS);
    assert.deepEqual(asked[2].body, asked[1].body);
    await asked[2].welcome();
    assert.equal(outcome.settled.ok, true);
    assert.deepEqual(named("lost"), []);
  });

  it("does not ask again before the time that an answer names", async () => {
    await joined();
    await asking("subscribe", { pattern: "b" });
    await asked[1].whole(503, "<html>", { "Retry-After": "3" });
    assert.deepEqual(named("lost"), [["lost", "HTTP 503", 3]]);
    await pass(AGAIN_MS);
    assert.equal(asked.length, 2);
    assertPromises();
  });

  it("continues with the previous token where a new one is refused, with the changes that came with it", async () => {
    await joined();
    const [refresh, other] = [request("refresh", { token: "u" }), request("subscribe", { pattern: "b" })];
    await pass(TOGETHER_MS);
    const error = { code: "unauthorized", message: "expired", retry: false };
    await asked[1].whole(401, { error });
    assert.deepEqual(refresh.settled.error.code, "unauthorized");
    assert.deepEqual([asked[1].body.token, asked[2].body.token], ["u", "t"]);
    await asked[2].welcome();
    assert.equal(other.settled.ok, true);
    assert.equal(named("refused").length + named("lost").length, 0);
    assertPromises();
  });

  it("settles a request when its time is up, and continues", async () => {
    await joined();
    const outcomes = [request("subscribe", { pattern: "b" }, 100), request("publish", { topic: "a" }, 100)];
    await pass(TOGETHER_MS);
    await pass(100);
    for (const { settled } of outcomes) assert.ok(settled instanceof Error);
    await asked.at(-1).welcome();
    assert.deepEqual(named("lost"), []);
  });

  for (const [name, body] of Object.entries({ publish: { topic: "a", id: "i" }, request: { name: "a", id: "i" } })) {
    it(`has no answer for a ${name} whose own connection broke, because it may have arrived, and continues`, async () => {
      await joined();
      const outcome = request(name, body);
      await turn();
      assert.deepEqual([asked.at(-1).url.pathname.split("/").at(-1), asked.at(-1).body.name, asked.at(-1).body.body], ["request", name, body]);
      asked.at(-1).resolve(Promise.reject(new TypeError("network")));
      await turn();
      assert.ok(outcome.settled instanceof Error);
      assert.deepEqual(named("lost"), []);
    });
  }

  for (const [status, body, why] of [[400, '{"code":3,"message":"Bad request"}', "Bad request (HTTP 400)"], [200, "<!doctype html>", "HTTP 200"]]) {
    it(`says of a request that another server has answered that it did not get through, and why: ${why}`, async () => {
      await joined();
      const outcome = request("publish", { topic: "a", id: "i" });
      await turn();
      await asked.at(-1).whole(status, body);
      const { code, reason, retry } = outcome.settled.error;
      assert.deepEqual([code, reason, retry], ["unreachable", why, true]);
      assert.deepEqual(named("lost"), []);
    });
  }

  it("that its owner has left says nothing more", async () => {
    const stream = await joined();
    const outcome = request("subscribe", { pattern: "b" });
    const before = calls.length;
    transport.disconnect();
    await pass(60_000);
    assert.ok(outcome.settled instanceof Error);
    assert.ok(stream.given);
    assert.equal(calls.length, before);
  });

  it("that its owner leaves within an event gives nothing that came with it", async () => {
    const stream = await joined();
    const { push } = calls;
    calls.push = (...entries) => {
      push.apply(calls, entries);
      if (entries[0][1] === "event") transport.disconnect();
    };
    await stream.write(event(101) + event(102));
    assert.deepEqual(offsets(), [101]);
  });

  it("that stays silent is lost", async () => {
    const stream = await joined();
    await pass(24_000);
    await stream.write(": \n\n");
    await pass(24_000);
    assert.deepEqual(named("lost"), []);
    await pass(1000);
    assert.deepEqual(named("lost"), [["lost", "ping timeout"]]);
    assertPromises();
  });

  it("leaves its owner to connect again where a log that has lost its end does not continue", async () => {
    await joined();
    const outcome = await asking("subscribe", { pattern: "b" });
    await asked[1].begin();
    await asked[1].write(block("welcome", welcomeOf(asked[1], 3, { epoch: "f", resumed: false })) + block("gap", { reason: "log_lost" }) + event(1));
    assert.ok(outcome.settled instanceof Error);
    assert.deepEqual(offsets(), [], "nothing of another log without its welcome");
    assert.equal(named("lost").length, 1);
    assertPromises();
  });
});

describe("an answer that is no stream", () => {
  const refusals = [
    [401, { error: { code: "unauthorized", message: "expired", retry: false } }, {}, ["refused", { code: "unauthorized", message: "expired", retry: false, retry_after_s: undefined }]],
    [503, { error: { code: "limit_reached", message: "full", retry: true } }, { "Retry-After": "7" }, ["refused", { code: "limit_reached", message: "full", retry: true, retry_after_s: 7 }]],
    [502, "<html>", { "Retry-After": "3" }, ["lost", "HTTP 502", 3]],
    [200, "<html>\n\ndata: {}\n\nid: x:9\n\n</html>", {}, ["lost", "HTTP 200", undefined]],
    [200, { ok: true }, {}, ["lost", "HTTP 200", undefined]],
    [204, "", {}, ["lost", "HTTP 204", undefined]],
  ];
  for (const [status, body, headers, call] of refusals) {
    it(`ends the attempt: ${status} ${JSON.stringify(body)}`, async () => {
      const stream = await open();
      if (status === 204) stream.resolve(new Response(null, { status }));
      else await stream.whole(status, body, headers);
      await turn();
      assert.deepEqual(calls.at(-1), call);
      await pass(60_000);
      assertPromises();
      assert.equal(asked.length, 1);
    });
  }

  it("is a redirect, which is not followed", async () => {
    const stream = await open();
    assert.equal(stream.redirect, "manual");
    stream.resolve({ type: "opaqueredirect", ok: false, status: 0, headers: new Headers(), text: async () => "" });
    await turn();
    assert.deepEqual(calls.at(-1), ["lost", "HTTP redirect", undefined]);
    assertPromises();
  });

  it("is a fault also where it claims to be one", async () => {
    const stream = await open();
    await stream.begin();
    await stream.write("data: <html>\n\n");
    assert.equal(named("lost").length, 1);
    assertPromises();
  });

  it("is lost where a change is refused, and only refused where it has not been up", async () => {
    await joined();
    const outcome = await asking("subscribe", { pattern: "b" });
    await asked[1].whole(503, { error: { code: "bus_unavailable", message: "not yet", retry: true } }, { "Retry-After": "1" });
    assert.ok(outcome.settled instanceof Error);
    assert.deepEqual([named("lost"), named("refused")], [[["lost", "not yet", 1]], []]);
    assertPromises();
  });
});

describe("a stream that something holds back", () => {
  const answer = (cursor, events = [], notices = []) => ({ cursor, events, notices });
  const noticed = (each, offset, more) => ({ type: "welcome", before: 0, body: welcomeOf(each, offset, more) });
  const texts = (offset) => ({ topic: "a", data: offset, id: `i${offset}`, time: 1, offset });

  /** Have the client find out that it must poll; return its first poll. */
  async function held(subscriptions) {
    const stream = await open(subscriptions);
    await stream.begin();
    await pass(HELD_BACK_MS);
    assert.ok(stream.given);
    return asked.at(-1);
  }

  it("becomes polls within five seconds, which ask for the same", async () => {
    const poll = await held([{ pattern: "a", since: { offset: 2 } }]);
    assert.equal(poll.accept, "application/json");
    assert.equal(poll.url.searchParams.get("wait"), "0");
    assert.deepEqual(poll.body.subscriptions, [{ pattern: "a", since: { offset: 2 } }], "with the past that was asked for");
    await poll.whole(200, answer("e:100", [texts(3)], [noticed(poll, 100)]));
    assert.deepEqual(named("arrived").map(([, name]) => name), ["welcome", "event"]);
    const next = asked.at(-1);
    assert.equal(next.url.searchParams.get("wait"), "25");
    assert.deepEqual([next.body.resume, next.body.subscriptions], [{ epoch: "e", offset: 100 }, [{ pattern: "a", since: { epoch: "e", offset: 3 } }]], "with the rest of it");
    await next.whole(200, answer("e:103", [texts(101), texts(103)], [noticed(next, 100), { type: "gap", before: 1, body: { reason: "overflow" } }]));
    assert.deepEqual(named("arrived").slice(2).map(([, name]) => name), ["event", "gap", "event"]);
    assert.deepEqual(asked.at(-1).body.resume, { epoch: "e", offset: 103 });
    assertPromises();
  });

  it("keeps a change that opened it, with its presence", async () => {
    await joined();
    const outcomes = [request("subscribe", { pattern: "b", since: { offset: 1 } }), request("presence", { topic: "r", act: "page", after: "x" })];
    await pass(TOGETHER_MS);
    await pass(HELD_BACK_MS);
    const poll = asked.at(-1);
    assert.deepEqual(poll.body.subscriptions[1], { pattern: "b", since: { offset: 1 } });
    assert.deepEqual(poll.body.requests, [["presence", { topic: "r", act: "page", after: "x" }]]);
    await poll.whole(200, answer("e:100", [], [noticed(poll, 100), { type: "answers", before: 0, body: { answers: [{ ok: true, members: [] }] } }]));
    assert.deepEqual(outcomes.map(({ settled }) => settled.ok), [true, true]);
  });

  it("answers no change by a poll that went out before it, also on the next connection", async () => {
    const poll = await held();
    await poll.whole(200, answer("e:1", [], [noticed(poll, 1)]));
    await asked.at(-1).whole(503, "<html>", { "Retry-After": "1" });
    calls.length = 0;
    const first = await open();
    await first.whole(200, answer("e:2", [], [noticed(first, 2)]));
    const outcome = request("subscribe", { pattern: "b" });
    const second = asked.at(-1);
    await second.whole(200, answer("e:3", [texts(3)], [noticed(second, 3)]));
    assert.equal(outcome.settled, undefined);
    await pass(TOGETHER_MS);
    assert.deepEqual(asked.at(-1).body.subscriptions, [{ pattern: "a" }, { pattern: "b" }]);
    await asked.at(-1).whole(200, answer("e:3", [], [noticed(asked.at(-1), 3)]));
    assert.equal(outcome.settled.ok, true);
  });

  it("has everything where the next poll is not answered at once, although its last events came from the log", async () => {
    const poll = await held();
    await poll.whole(200, answer("e:100", [], [noticed(poll, 100)]));
    await asked.at(-1).whole(200, answer("e:103", [texts(103)], []));
    const cursors = () => named("arrived").flatMap(([, name, args]) => (name === "cursor" ? args : []));
    assert.deepEqual(cursors(), []);
    await pass(1000);
    assert.deepEqual(cursors(), [{ epoch: "e", offset: 103 }]);
    await asked.at(-1).whole(200, answer("e:104", [texts(104)], []));
    transport.disconnect();
    await turn();
    await pass(1000);
    assert.equal(cursors().length, 1);
  });

  it("changes subscriptions with the next poll", async () => {
    const poll = await held();
    await poll.whole(200, answer("e:100", [], [noticed(poll, 100)]));
    const long = asked.at(-1);
    const outcome = await asking("subscribe", { pattern: "b" });
    assert.ok(long.given);
    const change = asked.at(-1);
    assert.equal(change.url.searchParams.get("wait"), "0");
    await change.whole(200, answer("e:100", [], [noticed(change, 100)]));
    assert.equal(outcome.settled.ok, true);
  });

  it("is tried again where no poll was answered either: the network was slow", async () => {
    const poll = await held();
    poll.resolve(Promise.reject(new TypeError("network")));
    await turn();
    assert.equal(named("lost").length, 1);
    calls.length = 0;
    assert.equal((await open()).accept, "text/event-stream");
  });

  it("is remembered over an attempt that a proxy has refused: an answer that ends has come", async () => {
    await (await held()).whole(502, "<html>");
    assert.deepEqual(named("lost").length, 1);
    calls.length = 0;
    assert.equal((await open()).accept, "application/json");
  });

  it("asks again at its position where a gateway behind the proxy is gone, and is lost where none is there", async () => {
    const first = await held();
    await first.whole(200, answer("e:7", [], [noticed(first, 7)]));
    const poll = asked.at(-1);
    poll.resolve(Promise.reject(new TypeError("network")));
    await turn();
    await pass(AGAIN_MS);
    assert.deepEqual(asked.at(-1).body, poll.body);
    await asked.at(-1).whole(200, answer("e:8", [texts(8)]));
    assert.deepEqual(offsets(), [8]);
    assert.deepEqual(asked.at(-1).body.resume, { epoch: "e", offset: 8 });
    for (const status of [522, 502, 504]) {
      await asked.at(-1).whole(status, "<html>");
      await pass(AGAIN_MS);
    }
    assert.deepEqual(named("lost"), [["lost", "HTTP 504", undefined]]);
    assertPromises();
  });

  it("is lost where a poll is not answered in its time", async () => {
    await held();
    await pass(10_000);
    assert.deepEqual(named("lost"), [["lost", "ping timeout"]]);
    assertPromises();
  });
});

describe("presence over HTTP", () => {
  const answers = (...each) => block("answers", { answers: each });
  const entry = (version) => ({ ok: true, topic: "r", copy: "c", version, members: [], next: null });

  it("gives each request its own answer, and asks again for what holds", async () => {
    await joined();
    const enter = request("presence", { topic: "r", act: "enter" });
    const watch = request("presence", { topic: "s", act: "watch" });
    const page = await asking("presence", { topic: "q", act: "page", after: "x" });
    await asked[1].welcome();
    assert.deepEqual([enter.settled, watch.settled, page.settled], [undefined, undefined, undefined]);
    await asked[1].write(answers(entry(1), { ok: true, topic: "s", copy: "d", version: 4 }, { ok: true, topic: "q", copy: "e", version: 9 }));
    assert.deepEqual([enter, watch, page].map(({ settled }) => settled.version), [1, 4, 9]);
    await asking("subscribe", { pattern: "b" });
    assert.deepEqual(asked[2].body.requests.map(([, { topic, act }]) => [topic, act]), [["r", "enter"], ["s", "watch"]]);
  });

  it("cuts no stream whose answers have not come", async () => {
    await joined();
    const enter = await asking("presence", { topic: "r", act: "enter" });
    await asked[1].welcome();
    const subscribe = request("subscribe", { pattern: "b" });
    await pass(TOGETHER_MS * 2);
    assert.equal(asked.length, 2);
    await asked[1].write(answers(entry(1)));
    assert.equal(enter.settled.version, 1);
    await pass(TOGETHER_MS);
    await asked[2].welcome();
    assert.equal(subscribe.settled.ok, true);
  });

  it("answers an entry that is left at once, and the next one", async () => {
    await joined();
    const outcomes = ["enter", "leave", "enter"].map((act) => request("presence", { topic: "r", act }));
    for (let n = 0; n < 3; n++) {
      await pass(TOGETHER_MS);
      const requests = asked.at(-1).body.requests.length;
      assert.equal(requests, n === 1 ? 0 : 1);
      await asked.at(-1).welcome();
      if (requests) await asked.at(-1).write(answers(entry(n)));
      assert.deepEqual(outcomes.map(({ settled }) => settled?.ok), [0, 1, 2].map((at) => (at <= n ? true : undefined)));
    }
  });

  it("has a room read again that has changed between two streams, and no other", async () => {
    await joined();
    await asking("presence", { topic: "r", act: "enter" });
    await asked[1].welcome();
    await asked[1].write(answers(entry(1)));
    for (const version of [1, 2]) {
      transport.probe();
      await turn();
      await asked.at(-1).welcome();
      await asked.at(-1).write(answers(entry(version)));
      await pass(0);
    }
    assert.deepEqual(named("arrived").filter(([, name]) => name === "presence"), [["arrived", "presence", [{ topic: "r", reset: true }]]]);
  });
});
