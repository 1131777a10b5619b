/**
 * The hub alone: its messages to tabs, and its requests to the gateway, one by one. The lane and the session forgive much (they leave out
 * repeated events, and those without a listener), so these tests stand where random histories of whole tabs do not look.
 */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Hub } from "../../src/tabs/hub.js";
import { heldOf } from "../forgotten.js";

const turn = () => new Promise((resolve) => setImmediate(resolve));
const refusal = { code: "forbidden", message: "forbidden: no grant covers it", retry: false };

/** A hub, and its messages to tabs and to the gateway. */
class Office {
  /** Messages to each tab. @type {Record<string, any[]>} */
  posts = {};
  /** Requests that wait for an answer. @type {{ name: string, body: any, answer: (reply: any) => void, fail: (error: any) => void }[]} */
  requests = [];
  moves = [];

  constructor(window) {
    this.hub = new Hub(
      {
        post: (tab, message) => {
          this.posts[tab] ??= [];
          this.posts[tab].push(message);
        },
        request: (name, body) => new Promise((answer, fail) => this.requests.push({ name, body, answer, fail })),
        move: (...move) => void this.moves.push(move),
      },
      window,
    );
  }

  join(tab, patterns, resume) {
    this.hub.join(tab, { resume, subscriptions: patterns.map((pattern) => ({ pattern })) });
    return turn();
  }

  /** A tab makes a request. */
  ask(...request) {
    this.hub.ask(...request);
    return turn();
  }

  /** The gateway welcomes; `refused` has the errors of patterns that it does not grant. */
  async welcome(offset = 0, { epoch = "e1", refused = {}, limits = {}, ...more } = {}) {
    // The hub has nothing left to do.
    await turn();
    const { resume, subscriptions } = this.hub.greeting();
    const results = subscriptions.map(({ pattern }) => (refused[pattern] ? { pattern, ok: false, error: refused[pattern] } : { pattern, ok: true }));
    const resumed = resume ? { resumed: true, from: resume } : { resumed: null };
    this.hub.arrived("welcome", [{ session: "s1", epoch, offset, ...resumed, limits, subscriptions: results, ...more }]);
    await turn();
    return { resume, subscriptions: subscriptions.map(({ pattern }) => pattern) };
  }

  event(topic, offset, data = offset) {
    this.hub.arrived("event", [topic, data, offset === undefined ? { time: 1 } : { id: `i${offset}`, time: 1, offset }]);
  }

  /** The gateway answers the oldest request. */
  async answer(reply = {}) {
    const { name, body, answer } = this.requests.shift();
    answer({ ok: true, epoch: "e1", offset: 0, ...reply });
    await turn();
    return [name, body.pattern];
  }

  /** Return the messages to a tab since the last call, shortened. */
  texts(tab) {
    return (this.posts[tab] ?? []).splice(0).map(({ type, name, args, text, ...rest }) => {
      if (name === "event") return `${args[0]} ${text}`;
      return name ? [name, args[0]] : [type, rest];
    });
  }
}

/** Patterns of a tab that has a position. */
const at = (offset, ...patterns) => ({ patterns, resume: { epoch: "e1", offset } });

/** An office with a connection, and welcomed tabs: name → patterns, or with a position. */
async function open(tabs, { window, head, ...more } = {}) {
  const office = new Office(window);
  for (const [tab, given] of Object.entries(tabs)) office.join(tab, given.patterns ?? given, given.resume);
  await office.welcome(head, more);
  for (const tab of Object.keys(tabs)) office.texts(tab);
  return office;
}

describe("a hub and its tabs", () => {
  it("sends each tab the events of its patterns, once, and nothing else", async () => {
    const office = await open({ one: ["a.#", "a.x"], two: ["b.#"] });
    office.event("a.x", 1);
    office.event("b.x", 2);
    office.event("c.x", 3);
    office.event("b.x", 2);
    office.event("a.x", 4);
    office.event("a.x", 4);
    office.event("a.x", undefined, "plain");
    assert.deepEqual(office.texts("one"), ["a.x 1", "a.x 4", 'a.x "plain"']);
    assert.deepEqual(office.texts("two"), ["b.x 2"]);
  });

  it("passes on to every tab that a trace asks what was handled, and to the gateway what each of them says", async () => {
    const office = await open({ one: ["a"], two: ["a"] }, { head: 5 });
    office.hub.arrived("handled", [{ ask: 3, offset: 5 }]);
    for (const tab of ["one", "two"]) {
      const { type, name, args } = office.posts[tab].at(-1);
      assert.deepEqual([type, name, args], ["lane", "handled", [{ ask: 3, offset: 5 }]]);
      office.hub.ask(tab, 7, "handled", { ask: 3, handled: tab === "two" });
    }
    assert.deepEqual(
      office.requests.map(({ name, body }) => [name, body]),
      [["handled", { ask: 3, handled: false }], ["handled", { ask: 3, handled: true }]],
    );
  });

  it("begins after the position of a tab, in its own patterns", async () => {
    const office = await open({ one: at(5, "a.#") }, { head: 8 });
    for (const offset of [6, 7, 8]) office.event("a.x", offset);
    assert.deepEqual(office.texts("one"), ["a.x 6", "a.x 7", "a.x 8"]);
    await office.join("two", ["a.#"], { epoch: "e1", offset: 7 });
    const [[type, { welcome }], ...rest] = office.texts("two");
    assert.deepEqual([type, welcome.resumed, welcome.from, welcome.offset], ["welcomed", true, { epoch: "e1", offset: 7 }, 8]);
    assert.deepEqual(rest, ["a.x 8", ["cursor", { epoch: "e1", offset: 8 }]]);
    await office.join("three", ["a.#"], { epoch: "e1", offset: 4 });
    assert.deepEqual(office.texts("three"), [["behind", {}]]);
    await office.join("four", ["a.#"], { epoch: "other", offset: 8 });
    assert.deepEqual(office.texts("four"), [["behind", {}]]);
  });

  it("sends a tab that joins without a position nothing older", async () => {
    const office = await open({ one: ["a.#"] });
    office.event("a.x", 1);
    await office.join("two", ["a.#"]);
    const [[, { welcome }], ...rest] = office.texts("two");
    assert.deepEqual([welcome.resumed, welcome.from, welcome.offset, rest], [null, null, 1, []]);
  });

  it("sends nothing to a tab that has parted, keeps its patterns, and takes it again", async () => {
    const office = await open({ one: ["a.#"], two: ["b.#"] });
    office.hub.part("two");
    office.event("b.x", 1);
    assert.deepEqual([office.texts("two"), office.requests], [[], []]);
    await office.join("two", ["b.#"], { epoch: "e1", offset: 0 });
    assert.deepEqual(office.texts("two").slice(1), ["b.x 1", ["cursor", { epoch: "e1", offset: 1 }]]);
  });

  it("asks the gateway to unsubscribe when the last tab with a pattern has left, or has joined without it", async () => {
    const office = await open({ one: ["a.#"], two: ["a.#", "b.#"], three: ["b.#"] });
    office.hub.leave("two");
    await turn();
    assert.deepEqual(office.requests, []);
    office.hub.leave("one");
    await turn();
    assert.deepEqual(await office.answer(), ["unsubscribe", "a.#"]);
    await office.join("three", []);
    assert.deepEqual(await office.answer(), ["unsubscribe", "b.#"]);
    office.hub.leave("unknown");
    office.event("b.x", 1);
    office.hub.lost("cut");
    assert.deepEqual([office.texts("one"), office.texts("two")], [[], []]);
  });

  it("sends a tab that takes nothing its window, later the rest or word that it is behind, and delays no other", async () => {
    const office = await open({ quick: ["a.#"], slow: ["a.#"] }, { window: 4 });
    const seen = (tab) => office.texts(tab).filter((text) => typeof text === "string").map((text) => Number(text.split(" ")[1]));
    const to = (first, last) => Array.from({ length: last + 1 - first }, (_, at) => first + at);
    const publish = (first, last) => {
      for (const offset of to(first, last)) {
        office.event("a.x", offset);
        office.hub.acknowledge("quick", 1);
      }
    };
    publish(1, 10);
    assert.deepEqual([seen("slow"), seen("quick")], [to(1, 4), to(1, 10)]);
    for (let rounds = 0; rounds < 10; rounds++) office.hub.acknowledge("slow", 4);
    assert.deepEqual(seen("slow"), to(5, 10));
    publish(11, 5000);
    assert.deepEqual([seen("slow"), seen("quick")], [to(11, 14), to(11, 5000)]);
    office.hub.acknowledge("slow", 4);
    assert.deepEqual(office.texts("slow"), [["behind", {}]]);
    // It comes back from a separate connection, at first below what the hub has.
    await office.join("slow", ["a.#"], { epoch: "e1", offset: 14 });
    assert.deepEqual(office.texts("slow"), [["behind", {}]]);
    await office.join("slow", ["a.#"], { epoch: "e1", offset: 4999 });
    assert.deepEqual(seen("slow"), [5000]);
  });

  it("gives a tab that joins again a whole window", async () => {
    const office = await open({ one: ["a.#"] }, { window: 4 });
    for (const offset of [1, 2, 3]) office.event("a.x", offset, "x".repeat(400_000));
    await office.join("one", ["a.#"], { epoch: "e1", offset: 3 });
    office.texts("one");
    for (const offset of [4, 5, 6, 7, 8]) office.event("a.x", offset);
    assert.deepEqual(office.texts("one"), ["a.x 4", "a.x 5", "a.x 6"], "the cursor of the welcome is the first of four");
  });

  it("stops at an unacknowledged megabyte of a tab, and continues at half of its window", async () => {
    const office = await open({ one: ["a.#"] }, { window: 8 });
    const large = "x".repeat(600_000);
    for (const offset of [1, 2, 3]) office.event("a.x", offset, large);
    assert.equal(office.texts("one").length, 2);
    office.hub.acknowledge("one", 2);
    assert.deepEqual(office.texts("one").map((texts) => texts[0]), ["status", "a", "cursor"]);
    for (let offset = 4; offset < 20; offset++) office.event("a.x", offset);
    assert.equal(office.texts("one").length, 5, "status, event and cursor are not acknowledged yet");
    office.hub.acknowledge("one", 3);
    assert.deepEqual(office.texts("one"), [], "five of eight are more than half");
    office.hub.acknowledge("one", 1);
    assert.deepEqual(office.texts("one").slice(0, 2), [["status", { bus: "up" }], "a.x 9"]);
    office.hub.acknowledge("unknown", 1);
  });
});

describe("a hub and requests", () => {
  it("subscribes at the gateway once, and answers each tab with where it begins", async () => {
    const office = await open({ one: [], two: [] });
    office.hub.ask("one", 1, "subscribe", { pattern: "a.#", overflow: "drop" });
    await office.ask("two", 7, "subscribe", { pattern: "a.#" });
    assert.deepEqual(office.requests.map(({ name, body }) => [name, body.pattern, body.overflow]), [["subscribe", "a.#", undefined]]);
    office.event("a.x", 1);
    await office.answer({ offset: 1 });
    const reply = { ok: true, pattern: "a.#", epoch: "e1", offset: 1 };
    assert.deepEqual(office.texts("one"), [["reply", { id: 1, reply }]]);
    assert.deepEqual(office.texts("two"), [["reply", { id: 7, reply }]]);
    office.event("a.x", 2);
    assert.deepEqual([office.texts("one"), office.texts("two")], [["a.x 2"], ["a.x 2"]]);
  });

  it("answers an unsubscribe at once, and no subscribe that it overtakes", async () => {
    const office = await open({ one: ["a.#"], two: ["a.#"] });
    office.hub.ask("one", 1, "subscribe", { pattern: "b.#" });
    office.hub.ask("one", 2, "unsubscribe", { pattern: "b.#" });
    await office.ask("one", 3, "unsubscribe", { pattern: "a.#" });
    assert.deepEqual(office.texts("one"), [["reply", { id: 2, reply: { ok: true, pattern: "b.#" } }], ["reply", { id: 3, reply: { ok: true, pattern: "a.#" } }]]);
    assert.deepEqual(office.requests, []);
    office.event("a.x", 1);
    assert.deepEqual([office.texts("one"), office.texts("two")], [[], ["a.x 1"]]);
  });

  it("gives one refusal to every tab that waits for it, and asks again after that", async () => {
    const office = await open({ one: [], two: [], three: [] });
    for (const [tab, id] of Object.entries({ one: 1, two: 2 })) await office.ask(tab, id, "subscribe", { pattern: "a.#" });
    assert.equal(office.requests.length, 1);
    await office.answer({ ok: false, error: refusal });
    for (const [tab, id] of Object.entries({ one: 1, two: 2 })) assert.deepEqual(office.texts(tab), [["reply", { id, reply: { pattern: "a.#", ok: false, error: refusal } }]]);
    await office.ask("three", 3, "subscribe", { pattern: "a.#" });
    await office.answer({ ok: false, error: { ...refusal, code: "paused" } });
    assert.equal(office.texts("three")[0][1].reply.error.code, "paused");
  });

  it("admits and answers a tab with one pattern that is refused for a passing reason, which the tab requests again", async () => {
    const unsure = { code: "authorize_failed", message: "no", retry: true };
    const office = new Office();
    office.join("one", ["a.#", "b.#"]);
    await office.welcome(0, { refused: { "a.#": unsure } });
    const [[, { welcome }]] = office.texts("one");
    assert.deepEqual(welcome.subscriptions.map(({ pattern, ok, error }) => [pattern, ok, error?.code, error?.retry]), [["a.#", false, "authorize_failed", true], ["b.#", true, undefined, undefined]]);
    await office.ask("one", 1, "subscribe", { pattern: "a.#" });
    assert.deepEqual(await office.answer(), ["subscribe", "a.#"]);
  });

  it("keeps no refusal of a pattern that no tab has, whatever brought it", async () => {
    const office = await open({ one: ["a.#"] });
    /** @type {WeakRef<object>[]} */
    const kept = [];
    const error = () => {
      const made = { ...refusal };
      kept.push(new WeakRef(made));
      return made;
    };
    await office.ask("one", 1, "subscribe", { pattern: "b.#" });
    await office.answer({ ok: false, error: error() });
    office.hub.arrived("status", [{ ended: [{ pattern: "a.#", error: error() }, { pattern: "never.#", error: error() }] }]);
    // A tab that is gone when the answer to its CONNECT comes.
    const other = new Office();
    other.join("one", ["c.#"]);
    const { subscriptions } = other.hub.greeting();
    other.hub.leave("one");
    other.hub.arrived("welcome", [{ session: "s2", epoch: "e1", offset: 0, resumed: null, limits: {}, subscriptions: subscriptions.map(({ pattern }) => ({ pattern, ok: false, error: error() })) }]);
    await turn();
    // The welcome of the present connection has its refusals.
    other.hub.lost("cut");
    for (const each of [office, other]) each.posts = {};
    assert.equal(kept.length, 4);
    assert.equal(await heldOf(kept), 0);
    for (const each of [office, other]) each.hub.leave("one");
  });

  it("passes other requests on, with their answer or without one", async () => {
    const office = await open({ one: [] });
    for (const id of [1, 2, 3]) office.hub.ask("one", id, "publish", { topic: "a.x", data: id });
    office.requests[0].answer({ ok: true, offset: 9 });
    office.requests[1].fail(Error("no answer in time"));
    office.requests[2].fail(Object.assign(Error("too large"), { code: "payload_too_large", retry: false, parts: { limit: 5 } }));
    await turn();
    assert.deepEqual(office.texts("one"), [
      ["reply", { id: 1, reply: { ok: true, offset: 9 } }],
      ["reply", { id: 2, reply: undefined }],
      ["reply", { id: 3, reply: { ok: false, error: { code: "payload_too_large", message: "too large", retry: false, limit: 5 } } }],
    ]);
  });

  it("ignores a tab without a lane", async () => {
    const office = await open({ one: ["a.#"] });
    office.hub.part("one");
    for (const tab of ["one", "unknown"]) office.hub.ask(tab, 1, "publish", { topic: "a.x", data: 1 });
    assert.deepEqual([office.requests, office.texts("one")], [[], []]);
  });

  it("forgets the requests of a tab that joins again", async () => {
    const office = await open({ one: [] });
    office.hub.ask("one", 1, "subscribe", { pattern: "a.#" });
    await office.join("one", ["a.#"]);
    await office.answer();
    assert.deepEqual(office.texts("one").map(([type]) => type), ["welcomed"]);
  });
});

describe("a hub at the gateway's limits", () => {
  const LIMITS = { max_subscriptions: 3, max_wildcards: 2 };

  it("has a tab without room for all of its patterns go alone, and keeps no place for it", async () => {
    const office = await open({ one: ["a", "b"] }, { limits: LIMITS });
    await office.join("two", ["b", "c", "d"]);
    assert.deepEqual(office.posts.two, [{ type: "behind", full: true }]);
    assert.deepEqual(office.requests, []);
    await office.ask("one", 1, "subscribe", { pattern: "e" });
    await office.answer();
    assert.equal(office.posts.one.at(-1).reply.ok, true);
  });

  it("sorts out in its first welcome who has room", async () => {
    const office = new Office();
    office.join("one", ["a", "b"]);
    await office.join("two", ["c", "d"]);
    await office.welcome(0, { limits: LIMITS, refused: { d: { code: "limit_reached", message: "full", retry: false, name: "subscriptions", limit: 3 } } });
    assert.deepEqual([office.posts.one.map(({ type }) => type), office.posts.two], [["welcomed"], [{ type: "behind", full: true }]]);
    assert.deepEqual(office.requests.map(({ name, body }) => [name, body.pattern]), [["unsubscribe", "c"]]);
  });

  it("reports the exceeded limit to a tab, and forgets its patterns when it connects alone", async () => {
    const office = await open({ one: ["a", "b"], two: ["c"] }, { limits: LIMITS });
    await office.ask("two", 7, "subscribe", { pattern: "d" });
    const { id, reply } = office.posts.two.at(-1);
    assert.deepEqual([id, reply.ok, reply.error.code, reply.error.name, reply.error.limit], [7, false, "limit_reached", "subscriptions", 3]);
    office.hub.drop("two");
    await turn();
    assert.deepEqual(office.requests.map(({ name, body }) => [name, body.pattern]), [["unsubscribe", "c"]]);
  });

  it("sends no request whose turn was to come after the end of the connection", async () => {
    const office = await open({ one: [] }, { limits: { inbound_per_s: 2, inbound_burst: 1 } });
    for (const id of [0, 1]) await office.ask("one", id, "publish", { topic: "a", data: id });
    office.hub.lost("gone");
    office.requests[0].fail(Error("gone"));
    await turn();
    assert.deepEqual([office.requests.length, office.hub.unanswered], [1, 0]);
  });

  it("refuses an ephemeral publish rather than send it late", async () => {
    const office = await open({ one: [] }, { limits: { inbound_per_s: 2, inbound_burst: 1 } });
    for (const id of [0, 1]) await office.ask("one", id, "publish", { topic: "a", data: id, ephemeral: true });
    assert.equal(office.requests.length, 1);
    assert.deepEqual(office.texts("one").map(([, { id, reply }]) => [id, reply.error.code]), [[1, "limit_reached"]]);
  });

  it("takes as many requests of all tabs as the gateway takes of one client, and says no to the rest", async () => {
    const office = await open({ one: [], two: [] }, { limits: { inbound_per_s: 0.002, inbound_burst: 10 } });
    for (let id = 0; id < 5; id++) for (const tab of ["one", "two"]) await office.ask(tab, id, "publish", { topic: "a", data: id });
    assert.equal(office.requests.length, 4);
    const refusals = [...office.posts.one, ...office.posts.two].flatMap(({ reply }) => (reply ? [reply.error] : []));
    assert.equal(refusals.length, 6);
    assert.ok(refusals.every(({ code, name, retry }) => code === "limit_reached" && name === "inbound_per_s" && retry));
    office.hub.lost("over");
  });
});

describe("a hub and its connection", () => {
  it("reports the gateway's refusals in the welcome of a tab", async () => {
    const office = new Office();
    office.join("one", ["a.#", "b.#"]);
    await office.welcome(3, { refused: { "b.#": refusal } });
    const [[, { welcome }]] = office.texts("one");
    assert.deepEqual(welcome.subscriptions, [{ pattern: "a.#", ok: true }, { pattern: "b.#", ok: false, error: refusal }]);
    office.event("b.x", 4);
    office.event("a.x", 5);
    assert.deepEqual(office.texts("one"), ["a.x 5"]);
  });

  it("resumes from its own position, or from the lowest of its tabs that is not far behind in the newest log", async () => {
    const office = new Office();
    office.join("old", ["a.#"], { epoch: "e0", offset: 9000 });
    office.join("far", ["a.#"], { epoch: "e1", offset: 4 });
    office.join("near", ["a.#"], { epoch: "e1", offset: 4000 });
    office.join("first", ["a.#"], { epoch: "e1", offset: 5000 });
    const { resume } = await office.welcome(5000);
    assert.deepEqual(resume, { epoch: "e1", offset: 4000 });
    assert.deepEqual([office.texts("old"), office.texts("far")], [[["behind", {}]], [["behind", {}]]]);
    assert.deepEqual([office.texts("near")[0][0], office.texts("first")[0][0]], ["welcomed", "welcomed"]);
    office.event("a.x", 5001);
    office.hub.lost("cut");
    assert.deepEqual(office.hub.greeting().resume, { epoch: "e1", offset: 5001 });
  });

  it("keeps the latest messages when it has resumed at its own position, and none when it continues elsewhere", async () => {
    const office = await open({ one: ["a.#"] });
    for (const offset of [1, 2, 3, 4, 5]) office.event("a.x", offset);
    office.hub.lost("cut");
    office.join("one", ["a.#"], { epoch: "e1", offset: 5 });
    await office.welcome(5);
    await office.join("two", ["a.#"], { epoch: "e1", offset: 3 });
    assert.deepEqual(office.texts("two").slice(1, 3), ["a.x 4", "a.x 5"]);
    office.hub.lost("cut");
    for (const tab of ["one", "two"]) office.texts(tab);
    office.join("two", ["a.#"], { epoch: "e1", offset: 5 });
    await office.welcome(8, { from: { epoch: "e1", offset: 8 } });
    assert.deepEqual(office.texts("two"), [["behind", {}]]);
  });

  it("asks for no past where no tab has a position", () => {
    const office = new Office();
    office.join("one", ["a.#"]);
    assert.deepEqual(office.hub.greeting(), { resume: undefined, subscriptions: [{ pattern: "a.#", overflow: undefined, since: undefined }] });
  });

  it("reports its end to every tab once, and sends nothing until they join again", async () => {
    const office = await open({ one: ["a.#"], two: ["a.#"], away: [] });
    office.hub.part("away");
    office.hub.lost("cut", 3);
    for (const tab of ["one", "two"]) assert.deepEqual(office.texts(tab), [["lost", { reason: "cut", retryAfterS: 3 }]]);
    assert.deepEqual(office.texts("away"), []);
    office.hub.lost("again");
    office.join("one", ["a.#"], { epoch: "e1", offset: 0 });
    await office.welcome();
    assert.equal(office.texts("one")[0][0], "welcomed");
    assert.deepEqual(office.texts("two"), []);
    office.hub.refused(refusal);
    assert.deepEqual(office.texts("one"), [["refused", { error: refusal }]]);
  });

  it("passes on that the gateway is about to stop, and the tabs join again", async () => {
    const office = await open({ one: ["a.#"] });
    office.hub.arrived("status", [{ moving: { reason: "deploy", within_s: 30 } }]);
    assert.deepEqual([office.moves, office.texts("one")], [[["deploy", 30]], []]);
    office.hub.moved("deploy");
    assert.deepEqual(office.texts("one"), [["status", { moving: { reason: "deploy", within_s: 0 } }]]);
    office.event("a.x", 1);
    office.hub.ask("one", 1, "publish", {});
    assert.deepEqual([office.texts("one"), office.requests], [[], []]);
  });

  it("reports the state of the bus to a tab, also to one that joins or continues later", async () => {
    const office = await open({ one: ["a.#"], slow: ["a.#"] }, { window: 4 });
    for (const offset of [1, 2, 3, 4]) {
      office.event("a.x", offset);
      office.hub.acknowledge("one", 1);
    }
    office.texts("one");
    office.texts("slow");
    office.hub.arrived("status", [{ bus: "down" }]);
    assert.deepEqual([office.texts("one"), office.texts("slow")], [[["status", { bus: "down" }]], []]);
    office.hub.acknowledge("slow", 4);
    assert.deepEqual(office.texts("slow")[0], ["status", { bus: "down" }]);
    await office.join("two", ["a.#"]);
    assert.deepEqual(office.texts("two")[1], ["status", { bus: "down" }]);
    office.hub.lost("cut");
    office.join("two", ["a.#"]);
    await office.welcome(4);
    assert.equal(office.texts("two").filter(([name]) => name === "status").length, 0, "a gateway that welcomes has its link");
  });

  it("reports new grants before the subscriptions that they end, so that no tab requests these again", async () => {
    const office = await open({ one: ["a.#"], two: ["a.#", "b.#"] }, { window: 4 });
    const ended = [{ pattern: "b.#", error: refusal }];
    office.hub.arrived("status", [{ ended, granted: true }]);
    assert.deepEqual(office.texts("one"), [["status", { granted: true }]]);
    assert.deepEqual(office.texts("two"), [["status", { granted: true }], ["status", { ended }]]);
  });

  it("ends a subscription that a new token no longer grants, in the tabs that have it", async () => {
    const office = await open({ one: ["a.#"], two: ["a.#", "b.#"], slow: ["b.#"] }, { window: 4 });
    for (const offset of [1, 2, 3, 4]) office.event("b.x", offset);
    office.hub.acknowledge("two", 4);
    for (const tab of ["two", "slow"]) office.texts(tab);
    const ended = [{ pattern: "b.#", error: refusal }];
    office.hub.arrived("status", [{ ended }]);
    assert.deepEqual(office.texts("one"), []);
    assert.deepEqual(office.texts("two"), [["status", { ended }]]);
    assert.deepEqual(office.texts("slow"), [["behind", {}]]);
    office.event("b.x", 5);
    assert.deepEqual(office.texts("two"), []);
  });

  it("passes on notices that it does not know", async () => {
    const office = await open({ one: ["a.#"] });
    office.hub.arrived("backpressure", [{ state: "on" }]);
    assert.deepEqual(office.texts("one"), [["backpressure", { state: "on" }]]);
  });
});

describe("a hub and the log", () => {
  it("passes a cursor to tabs that are not ahead of it, and resumes from there", async () => {
    const office = await open({ low: at(5, "a.#"), high: at(9, "a.#") }, { head: 9 });
    office.hub.arrived("cursor", [{ epoch: "e1", offset: 7 }]);
    assert.deepEqual([office.texts("low"), office.texts("high")], [[["cursor", { epoch: "e1", offset: 7 }]], []]);
    office.hub.arrived("cursor", [{ epoch: "e1", offset: 9 }]);
    assert.deepEqual(office.texts("high"), [["cursor", { epoch: "e1", offset: 9 }]]);
    office.hub.lost("cut");
    assert.deepEqual(office.hub.greeting().resume, { epoch: "e1", offset: 9 });
  });

  it("reports to a tab the part of a gap above its position, for its own patterns", async () => {
    const office = await open({ low: at(0, "a.#", "b.#"), high: at(6, "a.#"), beyond: at(8, "a.#"), other: at(0, "b.#") }, { head: 10 });
    const gap = { patterns: ["a.#"], from: 5, to: 8, count: 4, bytes: 9, reason: "overflow", recoverable: true };
    office.hub.arrived("gap", [gap]);
    assert.deepEqual(office.texts("low"), [["gap", gap]]);
    assert.deepEqual(office.texts("high"), [["gap", { ...gap, from: 7, count: 2 }]]);
    assert.deepEqual([office.texts("beyond"), office.texts("other")], [[], []]);
    // A tab that joins now learns of it too.
    await office.join("late", ["a.#"], { epoch: "e1", offset: 5 });
    assert.deepEqual(office.texts("late").slice(1), [["gap", { ...gap, from: 6, count: 3 }]]);
  });

  it("passes on that the log was lost, to each tab with its own patterns, and begins again", async () => {
    const office = await open({ one: ["a.#"], two: ["a.#", "b.#"] });
    office.event("a.x", 1);
    for (const tab of ["one", "two"]) office.texts(tab);
    const gap = { patterns: ["a.#", "b.#"], from: null, to: null, count: null, bytes: null, reason: "log_lost", recoverable: false };
    office.hub.arrived("gap", [gap]);
    assert.deepEqual(office.texts("one"), [["gap", { ...gap, patterns: ["a.#"] }]]);
    assert.deepEqual(office.texts("two"), [["gap", gap]]);
    await office.join("three", ["a.#"], { epoch: "e2", offset: 0 });
    assert.deepEqual(office.texts("three"), [], "nobody knows yet where the lane stands");
    office.hub.arrived("cursor", [{ epoch: "e2", offset: 0 }]);
    await turn();
    assert.equal(office.texts("three")[0][0], "welcomed");
    office.event("a.x", 1, "new");
    assert.deepEqual(office.texts("one"), [["cursor", { epoch: "e2", offset: 0 }], 'a.x "new"']);
    // No tab continues from a position in the old one.
    await office.join("two", ["a.#", "b.#"], { epoch: "e1", offset: 1 });
    assert.deepEqual(office.texts("two").at(-1), ["behind", {}]);
  });

  it("sends tabs away that may lack something of the old log's end", async () => {
    const office = await open({ one: ["a.#"], slow: ["a.#"], quiet: ["b.#"] }, { window: 2 });
    for (const offset of [1, 2]) {
      office.event("a.x", offset);
      office.hub.acknowledge("one", 1);
    }
    for (const tab of ["one", "slow"]) office.texts(tab);
    const gap = { patterns: ["a.#"], from: 2, to: 2, count: 1, bytes: 9, reason: "rolled_back", recoverable: false, epoch: "e2" };
    office.hub.arrived("gap", [gap]);
    assert.deepEqual(office.texts("one"), [["gap", gap]]);
    assert.deepEqual(office.texts("slow"), [["behind", {}]]);
    office.event("a.x", 2, "again");
    assert.deepEqual(office.texts("one"), ['a.x "again"']);
  });

  it("passes on another epoch in which nothing was lost, and sends a tab at another position to the gateway", async () => {
    const office = await open({ one: ["a.#"], slow: ["a.#"] }, { window: 2 });
    for (const offset of [1, 2]) {
      office.event("a.x", offset);
      office.hub.acknowledge("one", 1);
    }
    for (const tab of ["one", "slow"]) office.texts(tab);
    office.hub.arrived("cursor", [{ epoch: "e2", offset: 2 }]);
    assert.deepEqual(office.texts("one"), [["cursor", { epoch: "e2", offset: 2 }]]);
    assert.deepEqual(office.texts("slow"), [["behind", {}]]);
  });

  it("begins a pattern that was acknowledged in the next epoch when word of that epoch comes", async () => {
    const office = await open({ one: ["a.#"], two: [] });
    await office.ask("two", 1, "subscribe", { pattern: "b.#" });
    await office.answer({ epoch: "e2", offset: 3 });
    office.texts("two");
    office.hub.arrived("cursor", [{ epoch: "e2", offset: 3 }]);
    await office.join("three", ["b.#"], { epoch: "e2", offset: 3 });
    assert.equal(office.texts("three")[0][0], "welcomed");
    await office.join("four", ["b.#"], { epoch: "e2", offset: 2 });
    assert.deepEqual(office.texts("four"), [["behind", {}]]);
  });
});
