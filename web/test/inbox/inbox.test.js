/** The inbox of a page: single rules, and random histories of a gateway, other pages and faults against an oracle of the inbox. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it, mock } from "node:test";
import { badgeTitle, createInbox } from "#headgate/inbox";
import { checkOptions } from "../../src/language/options.js";
import { Dispatcher, HeadgateError } from "#headgate";
import { belowFrom } from "../chance.js";
import { settle } from "../fake-gateway.js";
import { heldOf } from "../forgotten.js";

const PATTERN = "users.me.inbox.#";
/** As inbox.lua's bounds, only smaller. */
const MOST_ITEMS = 8;
const MOST_MUTES = 3;

/** The inbox in Redis and its log, in the plainest form. A state for each offset, so that the log can lose its end. */
class Oracle {
  epoch = "e1";
  /** The log's record of earlier epochs. @type {Record<string, number>} */
  ends = {};
  /** @type {any[]} */
  log = [];
  /** @type {{ items: Map<string, any>, unread: number, mutes: any }[]} */
  states = [{ items: new Map(), unread: 0, mutes: {} }];

  get offset() {
    return this.log.length;
  }

  get state() {
    return this.states[this.offset];
  }

  #append(topic, data, id, items, mutes = this.state.mutes) {
    const unread = [...items.values()].filter(({ state }) => state === "u").length;
    this.states[this.offset + 1] = { items, unread, mutes };
    this.log.push({ topic, data: data && typeof data === "object" ? { ...data, unread } : data, id, time: 1, offset: this.offset + 1, replayed: false });
  }

  add(name) {
    const items = new Map(this.state.items);
    const [id, at] = [`k/${name}`, this.offset + 1];
    const isKnown = items.has(id);
    if (!isKnown) items.set(id, { id, kind: "k", data: name, time: 1, at, state: "u" });
    this.#append("users.ana.inbox.k", name, name, items);
    if (isKnown) this.#append("users.ana.inbox", { op: "kept", id, at }, `own-${at}`, new Map(items));
    if (items.size > MOST_ITEMS) {
      const ids = [...items.values()].sort((one, other) => (other.state === "a") - (one.state === "a") || one.at - other.at).slice(0, 2).map((item) => item.id);
      const left = new Map([...items].filter(([each]) => !ids.includes(each)));
      this.#append("users.ana.inbox", { op: "dropped", ids }, `own-${at}`, left);
    }
  }

  change({ op, ids, up_to: given = Infinity, epoch, pattern, channels }, id) {
    const upTo = Math.min(given, this.ends[epoch] ?? Infinity);
    if (this.log.some((event) => event.id === id)) return;
    if (pattern) {
      const { [pattern]: _, ...others } = this.state.mutes;
      const mutes = channels ? { ...others, [pattern]: channels } : others;
      if (Object.keys(mutes).length > MOST_MUTES) throw new HeadgateError("limit_reached", { name: "mutes", limit: MOST_MUTES });
      this.#append("users.ana.inbox", { op, pattern, ...(channels ? { channels } : {}), mutes }, id, this.state.items, mutes);
      return;
    }
    const items = new Map(this.state.items);
    const wanted = ids ?? [...items.values()].filter(({ at }) => at <= upTo).map((item) => item.id);
    if (ids && !ids.some((each) => items.has(each))) throw new HeadgateError("invalid_request", { reason: "no item" });
    const after = { read: { u: "r" }, unread: { r: "u", a: "u" }, archive: { u: "a", r: "a" }, read_all: { u: "r" } }[op];
    for (const each of wanted) {
      const item = items.get(each);
      if (item) items.set(each, { ...item, state: after[item.state] ?? item.state });
    }
    this.#append("users.ana.inbox", { op, ...(ids ? { ids } : { up_to: upTo }) }, id, items);
  }

  page({ before = Infinity, limit }) {
    const { items, unread, mutes } = this.state;
    const below = [...items.values()].filter(({ at, state }) => at < before && state !== "a").sort((one, other) => other.at - one.at);
    const part = below.slice(0, limit).map(({ state, ...item }) => ({ ...item, read: state === "r" }));
    return structuredClone({ epoch: this.epoch, offset: this.offset, unread, mutes, items: part, before: below.length > limit ? part.at(-1).at : null });
  }

  /** Lose the end of the log. @param {number} count */
  rollBack(count) {
    const end = Math.max(0, this.offset - count);
    for (const epoch of [...Object.keys(this.ends), this.epoch]) this.ends[epoch] = Math.min(end, this.ends[epoch] ?? end);
    this.log.length = end;
    this.states.length = end + 1;
    this.epoch = `e${Number(this.epoch.slice(1)) + 1}`;
  }
}

/** A gate between a page and the oracle. Each request is served, and later answered, and each event delivered, when the test says. */
class ModelGate extends Dispatcher {
  isUp = true;
  /** The log has lost its end while there was no connection. */
  isRolledBack = false;
  /** How far events have been delivered. */
  position;
  /** @type {{ serve?: () => any, answer?: () => void, fail: (error: any) => void }[]} */
  requests = [];
  /** @type {(() => void)[]} */
  waiting = [];
  status = "live";
  _loads = new Set();
  _checkOptions = checkOptions;

  constructor(oracle) {
    super();
    this.oracle = oracle;
    this.position = oracle.offset;
    this.state = { epoch: oracle.epoch };
  }

  /** As the gate's, for events with one handler. */
  _subscribe(pattern, _options, handler) {
    this.on(pattern, handler);
    return { close: () => this.off(pattern, handler) };
  }

  _position() {
    return { epoch: this.state.epoch, offset: this.position };
  }

  _standing() {
    return { status: "active", error: null };
  }

  _wired(pattern) {
    return pattern;
  }

  subscribed() {
    return this.isUp ? Promise.resolve() : new Promise((resolve) => this.waiting.push(() => resolve(undefined)));
  }

  #request(serve) {
    if (!this.isUp) return Promise.reject(new HeadgateError("disconnected", {}, true));
    return new Promise((resolve, reject) => {
      const request = {
        fail: reject,
        serve: () => {
          request.serve = undefined;
          try {
            const answer = serve();
            request.answer = () => resolve(answer);
          } catch (error) {
            request.answer = () => reject(error);
          }
        },
      };
      this.requests.push(request);
    });
  }

  _request(name, body) {
    assert.equal(name, "inbox");
    return this.#request(() => this.oracle.page(body));
  }

  publish(topic, data, { id }) {
    assert.equal(topic, "users.me.inbox");
    return this.#request(() => {
      this.oracle.change(data, id);
      return { id, epoch: this.oracle.epoch, offset: this.oracle.offset, duplicate: false };
    });
  }

  deliver(event = this.oracle.log[this.position++]) {
    this.trigger(PATTERN, event.data, structuredClone(event));
  }

  cut() {
    this.isUp = false;
    for (const { fail } of this.requests.splice(0)) fail(new HeadgateError("disconnected", {}, true));
  }

  up(resumed) {
    this.isUp = true;
    if (!resumed) this.position = this.oracle.offset;
    this.trigger("connection:up", { resumed });
    this.state = { epoch: this.oracle.epoch };
    if (resumed && this.isRolledBack) this.trigger("delivery:gap", { patterns: [PATTERN], lost: true, reason: "rolled_back", from: 1 });
    this.isRolledBack = false;
    for (const go of this.waiting.splice(0)) go();
  }
}

/** Ends of the inboxes of a test. @type {(() => void)[]} */
const leaving = [];

/** @param {Oracle} oracle @param {{ outbox?: any, pageSize?: number }} [options] */
function begin(oracle, options) {
  const gate = new ModelGate(oracle);
  const inbox = createInbox(/** @type {any} */ (gate), options);
  const leave = inbox.subscribe(() => {});
  leaving.push(leave);
  return { gate, inbox, leave };
}

/** An oracle with items of these names. @param {string} names */
function oracleWith(names) {
  const oracle = new Oracle();
  for (const name of names) oracle.add(name);
  return oracle;
}

/** The same, and an inbox that shows them. @param {string} names @param {any} [options] */
async function shown(names, options) {
  const oracle = oracleWith(names);
  const { gate, inbox } = begin(oracle, options);
  await drain(gate);
  return { oracle, gate, inbox };
}

/** An outbox that only keeps what it is given. */
function keeping() {
  /** @type {any[]} */
  const kept = [];
  return { kept, outbox: { publish: (topic, data, { id }) => new Promise((resolve, reject) => kept.push({ topic, data, id, resolve, reject })) } };
}

/** Serve, answer and deliver everything. @param {ModelGate} gate */
async function drain(gate) {
  for (let quiet = 0; quiet < 3; quiet++) {
    mock.timers.tick(2000);
    await settle();
    for (const request of gate.requests.splice(0)) {
      request.serve?.();
      request.answer?.();
      quiet = 0;
    }
    while (gate.position < gate.oracle.offset) {
      gate.deliver();
      quiet = 0;
    }
  }
}

const shownOf = (oracle) => oracle.page({ limit: 100 }).items.map(({ id, read }) => [id, read]);
const shownBy = (inbox) => inbox.items.map(({ id, read }) => [id, read]);

describe("the inbox of a page", () => {
  beforeEach(() => mock.timers.enable({ apis: ["setTimeout"] }));
  afterEach(() => {
    for (const leave of leaving.splice(0)) leave();
    mock.timers.reset();
  });

  it("shows what is there when the page comes, and what comes after", async () => {
    const oracle = oracleWith("a");
    const { gate, inbox } = begin(oracle);
    assert.deepEqual(inbox.getSnapshot(), { items: [], unread: 0, mutes: {}, hasMore: false, status: "loading", error: null });
    await drain(gate);
    oracle.add("b");
    await drain(gate);
    const { items, unread, status } = inbox.getSnapshot();
    assert.deepEqual([items, unread, status], [[
      { id: "k/b", kind: "k", data: "b", time: 1, at: 2, read: false },
      { id: "k/a", kind: "k", data: "a", time: 1, at: 1, read: false },
    ], 2, "current"]);
  });

  it("shows an action at once, and takes it back when it is refused", async () => {
    const { gate, inbox } = await shown("abc");
    const read = inbox.markRead("k/b");
    await settle();
    assert.deepEqual([inbox.unread, inbox.items[1].read], [2, true]);
    gate.requests[0].fail(new HeadgateError("limit_reached", {}));
    await assert.rejects(read, { code: "limit_reached" });
    await settle();
    assert.deepEqual([inbox.unread, inbox.items[1].read], [3, false]);
  });

  it("counts an action once, whether its answer or its event comes first", async () => {
    for (const isEventFirst of [true, false]) {
      const { gate, inbox } = await shown("abc");
      const done = inbox.archive(["k/a", "k/b"]);
      const [request] = gate.requests.splice(0);
      request.serve();
      if (isEventFirst) gate.deliver();
      request.answer();
      await done;
      await drain(gate);
      assert.deepEqual([shownBy(inbox), inbox.unread], [[["k/c", false]], 1]);
    }
  });

  it("keeps to an action that the log has taken in another epoch, until it has read the inbox again", async () => {
    const { oracle, gate, inbox } = await shown("ab");
    oracle.rollBack(0);
    const done = inbox.archive("k/a");
    const [request] = gate.requests.splice(0);
    request.serve();
    request.answer();
    await done;
    await settle();
    assert.deepEqual([shownBy(inbox), inbox.unread], [[["k/b", false]], 1]);
    await drain(gate);
    assert.deepEqual([shownBy(inbox), inbox.unread], [[["k/b", false]], 1]);
  });

  it("keeps an item when a loss is reported while an older page is under way", async () => {
    const { oracle, gate, inbox } = await shown("a");
    gate.up(false);
    mock.timers.tick(1000);
    await settle();
    const [older] = gate.requests.splice(0);
    older.serve();
    oracle.add("b");
    gate.deliver();
    await settle();
    assert.equal(inbox.items.length, 2);
    gate.trigger("delivery:gap", { patterns: [], lost: true });
    older.answer();
    await settle();
    assert.deepEqual([shownBy(inbox), inbox.getSnapshot().status], [[["k/b", false], ["k/a", false]], "behind"]);
    await drain(gate);
    assert.deepEqual([shownBy(inbox), inbox.getSnapshot().status], [[["k/b", false], ["k/a", false]], "current"]);
  });

  it("marks all as read up to the newest item that it shows", async () => {
    const { oracle, gate, inbox } = await shown("abcdef", { pageSize: 2 });
    oracle.add("late");
    const done = inbox.markAllRead();
    await settle();
    assert.equal(inbox.unread, 0);
    await drain(gate);
    await done;
    assert.deepEqual([inbox.unread, oracle.state.unread], [1, 1]);
  });

  it("marks what it showed as read, though the log has lost its end before that is sent", async () => {
    const { kept, outbox } = keeping();
    const { oracle, gate, inbox } = await shown("abc", { outbox });
    gate.cut();
    const done = inbox.markAllRead();
    oracle.rollBack(1);
    gate.isRolledBack = true;
    oracle.add("new");
    gate.up(false);
    const [{ topic, data, id, resolve, reject }] = kept;
    gate.publish(topic, data, { id }).then(resolve, reject);
    await drain(gate);
    await done;
    assert.deepEqual([shownBy(inbox), inbox.unread], [[["k/new", false], ["k/b", true], ["k/a", true]], 1]);
  });

  it("sends a long list of ids in parts that the gateway takes", async () => {
    const { oracle, gate, inbox } = await shown("a");
    const sizes = [];
    const { change } = oracle;
    oracle.change = (body, id) => {
      sizes.push(body.ids.length);
      return change.call(oracle, { ...body, ids: ["k/a"] }, id);
    };
    const done = inbox.markRead(Array.from({ length: 250 }, (_, nth) => `k/${nth}`));
    await drain(gate);
    await done;
    assert.deepEqual(sizes, [100, 100, 50]);
  });

  it("keeps no action whose fate is known, however that came, and shows what the log has", async () => {
    const oracle = oracleWith("abc");
    /** @type {WeakRef<object>[]} */
    const kept = [];
    /** @type {any} */
    let gate;
    let fate = "its event";
    const outbox = {
      publish(topic, data, { id }) {
        kept.push(new WeakRef(data));
        if (fate === "a refusal") return Promise.reject(new HeadgateError("forbidden", {}));
        const receipt = gate.publish(topic, data, { id });
        // The event is in the answer that the page reads after it.
        return fate === "another epoch" ? receipt.then((each) => ({ ...each, epoch: "e0" })) : receipt;
      },
    };
    const begun = begin(oracle, { outbox });
    gate = begun.gate;
    const { inbox } = begun;
    await drain(gate);
    for (fate of ["its event", "a refusal", "another epoch", "a connection that did not resume"]) {
      const ends = ["markRead", "markUnread", "archive"].map((act, nth) => inbox[act](`k/${"abc"[nth]}`).catch(() => {}));
      ends.push(inbox.mute("k.#").catch(() => {}), inbox.unmute("k.#").catch(() => {}), inbox.markAllRead().catch(() => {}));
      await settle();
      if (fate.startsWith("a connection")) {
        // No variable of this test holds one of them.
        gate.requests.splice(0).forEach((request) => void [request.serve(), request.answer()]);
        await Promise.all(ends);
        gate.cut();
        gate.up(false);
      }
      await drain(gate);
      await Promise.all(ends);
      assert.deepEqual([shownBy(inbox), inbox.unread], [shownOf(oracle), oracle.state.unread], fate);
    }
    oracle.log.length = 0;
    gate.requests.length = 0;
    assert.equal(kept.length, 24);
    assert.equal(await heldOf(kept), 0);
  });

  it("shows after a day without a connection what has come of it, and does then what was done in it", async () => {
    const { kept, outbox } = keeping();
    const { oracle, gate, inbox } = await shown("abc", { outbox });
    gate.cut();
    const done = [inbox.markRead("k/a"), inbox.markRead("k/b"), inbox.archive("k/c")];
    const gone = assert.rejects(inbox.markRead("k/never"), { code: "invalid_request" });
    await settle();
    assert.deepEqual([shownBy(inbox), inbox.unread], [[["k/b", true], ["k/a", true]], 0]);
    // Another device has put one away, and brought back another; more have come than a log keeps.
    oracle.change({ op: "archive", ids: ["k/a"] }, "other-1");
    oracle.change({ op: "unread", ids: ["k/b"] }, "other-2");
    for (const name of "def") oracle.add(name);
    gate.up(false);
    for (const { topic, data, id, resolve, reject } of kept) gate.publish(topic, data, { id }).then(resolve, reject);
    await drain(gate);
    await Promise.all([...done, gone]);
    assert.deepEqual([shownBy(inbox), inbox.unread], [shownOf(oracle), 3]);
    assert.deepEqual(shownBy(inbox), [["k/f", false], ["k/e", false], ["k/d", false], ["k/b", true]]);
  });

  it("says why it cannot be read, and reads it with the next connection", async () => {
    const oracle = new Oracle();
    const { gate, inbox } = begin(oracle);
    await settle();
    gate.requests.splice(0)[0].fail(new HeadgateError("forbidden", {}));
    await settle();
    assert.deepEqual([inbox.getSnapshot().status, inbox.getSnapshot().error.code], ["failed", "forbidden"]);
    gate.cut();
    gate.up(false);
    await drain(gate);
    assert.deepEqual([inbox.getSnapshot().status, inbox.getSnapshot().error], ["current", null]);
  });

  it("mutes at once and for every page, and takes it back when it is refused", async () => {
    const oracle = new Oracle();
    const [one, other] = [begin(oracle), begin(oracle)];
    await drain(one.gate);
    await drain(other.gate);
    const done = one.inbox.mute("k.#", ["page", "push"]);
    await settle();
    assert.deepEqual([one.inbox.isMuted("k"), one.inbox.isMuted("k.a", "push"), one.inbox.isMuted("k", "mail"), one.inbox.isMuted("j")], [true, true, false, false]);
    await drain(one.gate);
    await done;
    await drain(other.gate);
    assert.deepEqual([other.inbox.getSnapshot().mutes, other.inbox.isMuted("k")], [{ "k.#": ["page", "push"] }, true]);
    const undone = other.inbox.unmute("k.#");
    await settle();
    assert.equal(other.inbox.isMuted("k"), false);
    other.gate.requests[0].fail(new HeadgateError("limit_reached", {}));
    await assert.rejects(undone, { code: "limit_reached" });
    assert.equal(other.inbox.isMuted("k"), true);
    void one.inbox.mute("__proto__", ["page"]);
    await settle();
    assert.deepEqual([one.inbox.isMuted("__proto__"), one.inbox.isMuted("j")], [true, false]);
    for (const { leave } of [one, other]) leave();
  });

  it("refuses what cannot be muted before it asks the gateway", async () => {
    const { gate, inbox } = begin(new Oracle());
    await drain(gate);
    await assert.rejects(inbox.mute("a..b"), { code: "invalid_pattern" });
    await assert.rejects(inbox.unmute(""), { code: "invalid_pattern" });
    for (const channels of [[], ["sms"]]) await assert.rejects(inbox.mute("a", /** @type {any} */ (channels)), { code: "invalid_request" });
    assert.deepEqual(gate.requests, []);
  });

  it("alerts of an item that arrives, once, and of none that is muted or was there", async () => {
    const oracle = new Oracle();
    const alerts = [];
    oracle.add("before");
    const { gate, inbox } = begin(oracle);
    const end = inbox.onAlert(({ id }) => alerts.push(id));
    await drain(gate);
    oracle.add("a");
    oracle.add("a");
    await drain(gate);
    oracle.change({ op: "mute", pattern: "k", channels: ["page"] }, "m1");
    oracle.add("b");
    oracle.change({ op: "mute", pattern: "k", channels: ["mail"] }, "m2");
    oracle.add("c");
    await drain(gate);
    end();
    oracle.add("d");
    await drain(gate);
    assert.deepEqual([alerts, inbox.unread], [["k/a", "k/c"], 5]);
  });

  it("alerts of an item that arrives while the connection is broken, when the log brings it", async () => {
    const oracle = new Oracle();
    const alerts = [];
    const { gate, inbox } = begin(oracle);
    inbox.onAlert(({ id }) => alerts.push(id));
    await drain(gate);
    oracle.add("missed");
    oracle.log.at(-1).replayed = true;
    await drain(gate);
    assert.deepEqual(alerts, ["k/missed"]);
  });

  it("refuses an option that breaks its rule", () => {
    for (const pageSize of [0, 101, 1.5, "20"]) assert.throws(() => begin(new Oracle(), { pageSize }), /pageSize must be/);
  });

  it("shows the count in the title of the page, and takes it away again", async () => {
    const oracle = new Oracle();
    const [page, { gate, inbox }] = [{ title: "Shop" }, begin(oracle)];
    const end = badgeTitle(inbox, page);
    await drain(gate);
    oracle.add("a");
    await drain(gate);
    assert.equal(page.title, "(1) Shop");
    // The application shows another of its views.
    page.title = "Cart";
    oracle.add("b");
    await drain(gate);
    assert.equal(page.title, "(2) Cart");
    end();
    assert.equal(page.title, "Cart");
  });

  it("is read when its subscription finds a place that there was none for", async () => {
    const oracle = oracleWith("a");
    const gate = new ModelGate(oracle);
    const full = new HeadgateError("limit_reached", { name: "subscriptions", limit: 1 });
    gate.subscribed = () => Promise.reject(full);
    const inbox = createInbox(/** @type {any} */ (gate));
    leaving[0] = inbox.subscribe(() => {});
    await settle();
    assert.deepEqual([inbox.getSnapshot().status, inbox.getSnapshot().error], ["failed", full]);
    gate.subscribed = () => Promise.resolve();
    gate.trigger(`subscription:${PATTERN}`);
    await drain(gate);
    assert.deepEqual([inbox.getSnapshot().status, shownBy(inbox)], ["current", [["k/a", false]]]);
  });

  it("alerts each listener, though one before it throws", async () => {
    const oracle = new Oracle();
    const { gate, inbox } = begin(oracle);
    const reported = mock.method(console, "error", () => {});
    const [alerts, note] = [[], ({ id }) => alerts.push(id)];
    inbox.onAlert(() => {
      throw Error("no toast");
    });
    const ends = [inbox.onAlert(note), inbox.onAlert(note)];
    await drain(gate);
    oracle.add("a");
    await drain(gate);
    ends[0]();
    oracle.add("b");
    await drain(gate);
    reported.mock.restore();
    assert.deepEqual([alerts, reported.mock.callCount()], [["k/a", "k/a", "k/b"], 2]);
  });

  it("agrees with the oracle when everything has arrived, whatever came between", async () => {
    for (let seed = 0; seed < Number(process.env.HEADGATE_HISTORIES ?? 120); seed++) await history(seed);
  });
});

/** @param {number} seed */
async function history(seed) {
  const any = belowFrom(seed);
  const oracle = new Oracle();
  for (let count = any(6); count > 0; count--) oracle.add(`n${any(12)}`);
  const { gate, inbox, leave } = begin(oracle, { pageSize: 1 + any(4) });
  /** Events that a gap has held back, until they come after others. @type {any[]} */
  let held = [];
  const ids = () => Array.from({ length: 1 + any(3) }, () => `k/n${any(12)}`);
  const quiet = (/** @type {Promise<any>} */ done) => done.catch(() => {});
  const steps = [
    () => oracle.add(`n${any(12)}`),
    () => oracle.add(`n${any(12)}`),
    () => {
      // Another page, or the application.
      try {
        const op = ["read", "unread", "archive", "read_all"][any(4)];
        oracle.change(op === "read_all" ? { op, up_to: any(oracle.offset + 1) } : { op, ids: ids() }, `other-${seed}-${oracle.epoch}-${oracle.offset}`);
      } catch {}
    },
    () => {
      try {
        const pattern = `p${any(5)}`;
        oracle.change(any(3) ? { op: "mute", pattern, channels: ["page"] } : { op: "unmute", pattern }, `other-${seed}-${oracle.epoch}-${oracle.offset}`);
      } catch {}
    },
    () => quiet(any(3) ? inbox.mute(`p${any(5)}`, any(2) ? ["mail"] : ["page"]) : inbox.unmute(`p${any(5)}`)),
    () => quiet(inbox.markRead(ids())),
    () => quiet(inbox.markUnread(ids())),
    () => quiet(inbox.archive(ids())),
    () => quiet(inbox.markAllRead()),
    () => quiet(inbox.loadMore()),
    () => gate.requests[any(gate.requests.length || 1)]?.serve?.(),
    () => {
      const answered = gate.requests.findIndex(({ answer }) => answer);
      if (answered >= 0) gate.requests.splice(answered, 1)[0].answer();
    },
    () => gate.isUp && gate.position < oracle.offset && gate.deliver(),
    () => gate.isUp && gate.position < oracle.offset && gate.deliver(),
    () => (gate.isUp ? any(3) || gate.cut() : gate.up(any(2) > 0)),
    () => {
      // A gap of the client's queue, with events that come later, after newer ones.
      if (!gate.isUp || gate.position >= oracle.offset) return;
      held.push(...oracle.log.slice(gate.position, gate.position + 2));
      gate.position = Math.min(oracle.offset, gate.position + 2);
      gate.trigger("delivery:gap", { patterns: [PATTERN], repairing: true, lost: false });
    },
    () => {
      for (const event of held.splice(0)) gate.deliver({ ...event, replayed: true });
    },
    () => {
      if (any(8)) return;
      oracle.rollBack(1 + any(4));
      held = [];
      const behind = gate.position > oracle.offset;
      gate.position = Math.min(gate.position, oracle.offset);
      if (gate.isUp) gate.state = { epoch: oracle.epoch };
      if (gate.isUp) gate.trigger("delivery:gap", { patterns: behind ? [PATTERN] : [], lost: true, reason: "rolled_back", from: oracle.offset + 1 });
      else gate.isRolledBack = true;
    },
  ];
  for (let count = 0; count < 60; count++) {
    steps[any(steps.length)]();
    if (any(2)) await settle();
    const { items, unread } = inbox.getSnapshot();
    assert.ok(unread >= 0 && new Set(items.map(({ id }) => id)).size === items.length, `seed ${seed}: an item is there twice`);
  }
  if (!gate.isUp) gate.up(false);
  for (const event of held.splice(0)) gate.deliver({ ...event, replayed: true });
  await drain(gate);
  assert.deepEqual([inbox.unread, inbox.getSnapshot().status], [oracle.state.unread, "current"], `seed ${seed}: the count`);
  const there = new Map(oracle.page({ limit: 100 }).items.map((item) => [item.id, item]));
  assert.deepEqual(inbox.items, inbox.items.map(({ id }) => there.get(id)), `seed ${seed}: an item`);
  assert.deepEqual(inbox.getSnapshot().mutes, oracle.state.mutes, `seed ${seed}: what is muted`);
  while (inbox.getSnapshot().hasMore) {
    const more = inbox.loadMore();
    await drain(gate);
    await more;
  }
  assert.deepEqual(shownBy(inbox), shownOf(oracle), `seed ${seed}: the items`);
  leave();
}
