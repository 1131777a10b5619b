/** The stores: snapshots of events, collections and the status. */
import assert from "node:assert/strict";
import { describe, it, mock } from "node:test";
import { collectionStore, eventsStore, presenceStore, statusStore } from "#headgate/store";
import { begin } from "../begin.js";
import { belowFrom } from "../chance.js";
import { settle } from "../fake-gateway.js";

/** Listen to a store, and count its notices. */
function listen(store) {
  const reports = { count: 0, leave: () => {} };
  reports.leave = store.subscribe(() => reports.count++);
  return reports;
}

/** A gate that is let in, and a store of it with a listener. */
async function following(make, ...rest) {
  const { gateway, gate } = begin();
  const store = make(gate, ...rest);
  const reports = listen(store);
  await gateway.letIn();
  return { gateway, gate, store, reports };
}

/** An event comes. */
async function happen(gateway, ...event) {
  gateway.event(...event);
  await settle();
}

const topics = (store) => store.getSnapshot().events.map(({ topic }) => topic);

describe("a store of events", () => {
  it("holds the events of its pattern, oldest first, and notifies once for all of one turn", async () => {
    const { gateway, store, reports } = await following(eventsStore, "a.*");
    const [before, count] = [store.getSnapshot(), reports.count];
    assert.equal(before.status, "active");
    for (const n of [1, 2, 3]) gateway.event(`a.${n}`, n, 100 + n);
    await happen(gateway, "b.1", 1, 104);
    assert.deepEqual(topics(store), ["a.1", "a.2", "a.3"]);
    assert.equal(reports.count, count + 1);
    assert.deepEqual(before.events, [], "a snapshot is never changed");
    assert.equal(store.getSnapshot(), store.getSnapshot());
    await happen(gateway, "b.2", 1, 105);
    assert.equal(reports.count, count + 1, "nothing of another pattern is told");
  });

  it("reads its own subscription when that changes, and not when another one does", async () => {
    const { gateway, gate } = begin();
    await gateway.welcome();
    const looks = mock.method(gate, "_standing");
    const reads = mock.method(Object.getPrototypeOf(gate), "state", () => ({}), { getter: true });
    const stores = Array.from({ length: 200 }, (_, n) => eventsStore(gate, `a.${n}`));
    stores.forEach(listen);
    for (let n = 0; n < stores.length; n++) {
      await gateway.answer("subscribe");
      await settle();
    }
    assert.ok(stores.every((store) => store.getSnapshot().status === "active"));
    assert.ok(looks.mock.callCount() <= 5 * stores.length, `${looks.mock.callCount()} looks`);
    assert.equal(reads.mock.callCount(), 0);
  });

  it("keeps at most its limit of events, the latest", async () => {
    const { gateway, store } = await following(eventsStore, "a.*", { limit: 2 });
    for (const n of [1, 2, 3]) await happen(gateway, `a.${n}`, n, 100 + n);
    assert.deepEqual(topics(store), ["a.2", "a.3"]);
  });

  it("subscribes with its first listener, and unsubscribes when the last has left", async () => {
    const { gateway, gate } = begin();
    const [one, other] = [eventsStore(gate, "a.*"), eventsStore(gate, "a.*")];
    const [first, second] = [listen(one), listen(one)];
    const third = listen(other);
    await gateway.welcome();
    assert.deepEqual(gateway.connects[0].subscriptions, [{ pattern: "a.*" }]);
    await happen(gateway, "a.1", 1, 101);
    assert.deepEqual([topics(one), topics(other)], [["a.1"], ["a.1"]]);
    first.leave();
    first.leave();
    third.leave();
    await settle();
    assert.equal(gate.state.subscriptions["a.*"], "active");
    assert.deepEqual(topics(other), [], "without listeners it holds nothing");
    second.leave();
    await gateway.answer("unsubscribe");
    assert.equal(gate.state.subscriptions["a.*"], undefined);
  });

  it("keeps what it holds when a listener leaves and another comes in the same turn", async () => {
    const { gateway, gate } = begin();
    const store = eventsStore(gate, "a.*");
    const first = listen(store);
    await gateway.welcome();
    await happen(gateway, "a.1", 1, 101);
    first.leave();
    const second = listen(store);
    await settle();
    assert.deepEqual(topics(store), ["a.1"]);
    assert.deepEqual(gateway.requests, []);
    second.leave();
  });

  it("asks for nothing when its listener leaves in the turn in which it came", async () => {
    const { gateway, gate } = begin();
    await gateway.letIn();
    listen(eventsStore(gate, "a.*", { since: { last: 1 } })).leave();
    await settle();
    assert.deepEqual(gateway.requests, []);
  });

  it("inserts repaired events by their offsets, and counts lost ones", async () => {
    const { gateway, store } = await following(eventsStore, "a.*", { overflow: "drop" });
    gateway.event("a.1", 1, 101);
    gateway.emit("gap", { patterns: ["a.*"], from: 102, to: 104, count: 3, bytes: 9, reason: "overflow", recoverable: true });
    await happen(gateway, "a.5", 5, 105);
    assert.deepEqual(topics(store), ["a.1", "a.5"]);
    assert.equal(store.getSnapshot().gap, null, "it is being repaired");
    const meta = (offset) => ({ id: `i${offset}`, time: 1, offset, replayed: true });
    await gateway.answer("replay", { ok: true, events: [["a.2", 2, meta(102)], ["a.4", 4, meta(104)]], next: null });
    await settle();
    assert.deepEqual(topics(store), ["a.1", "a.2", "a.4", "a.5"]);
    assert.equal(store.getSnapshot().missed, 1);
    assert.equal(store.getSnapshot().gap.lost, true);
    gateway.emit("gap", { patterns: ["b.*"], from: 106, to: 107, count: 2, bytes: 9, reason: "trimmed", recoverable: false });
    await settle();
    assert.equal(store.getSnapshot().missed, 1, "the gap of another pattern is not its own");
  });

  it("removes the events that the log has lost, and continues with those that replace them", async () => {
    const { gateway, store } = await following(eventsStore, "a.*");
    for (const n of [1, 2, 3]) gateway.event(`a.${n}`, n, 100 + n);
    gateway.emit("gap", { patterns: [], from: 102, to: 103, count: 2, bytes: null, reason: "rolled_back", recoverable: false, epoch: "e2" });
    await happen(gateway, "a.other", 2, 102);
    assert.deepEqual(topics(store), ["a.1", "a.other"]);
    assert.equal(store.getSnapshot().missed, 0, "they were seen");
    assert.equal(store.getSnapshot().gap.reason, "rolled_back");
  });

  it("appends the events of another log to those of the lost one", async () => {
    const { gateway, store } = await following(eventsStore, "a.*");
    gateway.event("a.old", 1, 101);
    gateway.emit("gap", { patterns: [], from: null, to: null, count: null, bytes: null, reason: "log_lost", recoverable: false });
    gateway.event("a.2", 1, 2);
    gateway.event("a.3", 1, 3);
    gateway.emit("event", "a.live", 1, { id: null, time: 1 });
    await settle();
    assert.deepEqual(topics(store), ["a.old", "a.2", "a.3", "a.live"]);
  });

  it("says why the gateway refuses its pattern, also to one that comes later", async () => {
    const { gateway, gate } = begin();
    mock.method(console, "error", () => {});
    const store = eventsStore(gate, "a.*");
    listen(store);
    await gateway.letIn({ subscriptions: [{ pattern: "a.*", ok: false, error: { code: "forbidden", message: "no" } }] });
    assert.equal(store.getSnapshot().status, "refused");
    assert.equal(store.getSnapshot().error.code, "forbidden");
  });

  it("says that the connection was refused for good", async () => {
    const { gateway, gate } = begin();
    mock.method(console, "error", () => {});
    const store = eventsStore(gate, "a.*");
    listen(store);
    await gateway.until(() => gateway.connects.length);
    gateway.refuse({ code: "unauthorized", message: "no", retry: false });
    await settle();
    assert.equal(store.getSnapshot().error.code, "unauthorized");
    const later = eventsStore(gate, "b.*");
    listen(later);
    await settle();
    assert.equal(later.getSnapshot().error.code, "unauthorized");
  });

  it("does not notify a listener that has ended, also by another listener", async () => {
    const { gateway, gate } = begin();
    const store = eventsStore(gate, "a.*");
    const ended = mock.fn();
    let end = () => {};
    store.subscribe(() => end());
    end = store.subscribe(ended);
    await gateway.letIn();
    assert.equal(ended.mock.callCount(), 0);
  });

  it("notifies its other listeners if one throws", async () => {
    const { gateway, gate } = begin();
    const reported = mock.method(console, "error", () => {});
    const store = eventsStore(gate, "a.*");
    store.subscribe(() => {
      throw new Error("mine");
    });
    const reports = listen(store);
    await gateway.letIn();
    assert.ok(reports.count > 0);
    assert.equal(reported.mock.calls[0].arguments[0].message, "mine");
  });
});

describe("a store of a live collection", () => {
  const items = (store) => store.getSnapshot().items;

  /** A server with answers that wait until the test gives them. */
  function server() {
    const requests = [];
    const load = ({ signal }) => new Promise((resolve, reject) => requests.push({ resolve, reject, signal }));
    /** Answer a request, and let that have its effect. */
    const answer = (nth, items) => {
      requests[nth].resolve(items);
      return settle();
    };
    return { requests, load, answer };
  }

  /** A gate with another subscription, which is let in. */
  async function live(options) {
    const { gateway, gate } = begin(options);
    gate.on("other", () => {});
    await gateway.letIn();
    return { gateway, gate };
  }

  it("loads, follows the events of its items, and loads again once the subscription is active", async () => {
    const { gateway, gate } = begin();
    const answers = [[{ id: 1, version: 1 }], [{ id: 1, version: 1 }, { id: 2, version: 1 }]];
    const store = collectionStore(gate, "orders", { load: () => answers.shift() });
    listen(store);
    assert.equal(store.getSnapshot().status, "loading");
    await settle();
    assert.deepEqual([store.getSnapshot().status, items(store)], ["behind", [{ id: 1, version: 1 }]]);
    await gateway.letIn();
    assert.deepEqual([store.getSnapshot().status, items(store).length], ["current", 2]);
    const before = items(store);
    gateway.event("orders.1.shipped", { version: 2, status: "shipped" }, 101);
    gateway.event("orders.3.created", { version: 1 }, 102);
    gateway.event("orders.4.shipped", { version: 1 }, 103);
    await happen(gateway, "orders.2.deleted", null, 104);
    assert.deepEqual(items(store), [{ id: 1, version: 2, status: "shipped" }, { id: "3", version: 1 }]);
    assert.deepEqual(before, [{ id: 1, version: 1 }, { id: 2, version: 1 }], "items are never changed");
    await happen(gateway, "orders.1.shipped", { version: 2, status: "old" }, 105);
    assert.equal(items(store)[0].status, "shipped");
    assert.deepEqual(answers, []);
  });

  it("loads once where the connection is live already", async () => {
    const { gateway, gate } = await live();
    const { requests, load, answer } = server();
    const store = collectionStore(gate, "orders", { load });
    listen(store);
    await gateway.answer("subscribe");
    await settle();
    assert.equal(requests.length, 1);
    await answer(0, [{ id: 1 }]);
    assert.equal(store.getSnapshot().status, "current");
    assert.equal(requests.length, 1);
  });

  it("does not wait for an acknowledgement that is long in coming: the connection has gone", async () => {
    const { gateway, gate } = await live({ reconnectDelayMinMs: 0, reconnectDelayMaxMs: 1 });
    const { requests, load, answer } = server();
    listen(collectionStore(gate, "orders", { load }));
    await settle();
    assert.equal(requests.length, 0);
    gateway.cut();
    assert.equal(requests.length, 1);
    await gateway.until(() => gateway.connects.length === 2, "another CONNECT");
    await gateway.welcome();
    await answer(0, []);
    assert.equal(requests.length, 2, "it was begun before the acknowledgement");
  });

  it("applies events that come while a load is under way, and again after its older answer", async () => {
    const { requests, load, answer } = server();
    const { gateway, store } = await following(collectionStore, "orders", { load, initial: [{ id: 1, version: 1 }] });
    assert.deepEqual(store.getServerSnapshot().items, [{ id: 1, version: 1 }]);
    gateway.event("orders.2.created", { version: 1 }, 101);
    await happen(gateway, "orders.1.deleted", { version: 1 }, 102);
    assert.deepEqual(items(store).map(({ id }) => id), ["2"]);
    await answer(0, [{ id: 1, version: 1 }]);
    // The first was begun before the acknowledgement.
    assert.equal(requests.length, 2);
    requests[1].resolve([{ id: 1, version: 1 }]);
    await happen(gateway, "orders.3.created", { version: 1 }, 103);
    assert.ok(items(store).some(({ id }) => id === "3"));
    assert.equal(store.getSnapshot().status, "current");
  });

  it("loads again when events are lost for good, and takes lower versions when the log has lost its end", async () => {
    const { requests, load, answer } = server();
    const { gateway, store } = await following(collectionStore, "orders", { load, resyncSpreadMs: 0 });
    await answer(0, []);
    await answer(1, [{ id: 1, version: 7 }]);
    gateway.emit("gap", { patterns: ["orders.*.*"], from: 101, to: 104, count: 4, bytes: 9, reason: "trimmed", recoverable: false });
    await settle();
    assert.equal(store.getSnapshot().status, "behind");
    await gateway.until(() => requests.length === 3);
    await answer(2, [{ id: 1, version: 6 }]);
    assert.deepEqual(items(store), [{ id: 1, version: 7 }]);
    gateway.emit("gap", { patterns: [], from: 105, to: 106, count: 2, bytes: null, reason: "rolled_back", recoverable: false, epoch: "e2" });
    await gateway.until(() => requests.length === 4);
    await answer(3, [{ id: 1, version: 6 }]);
    assert.deepEqual(items(store), [{ id: 1, version: 6 }]);
    assert.equal(store.getSnapshot().status, "current");
  });

  it("reports that a load failed, keeps its items, and loads again on reload", async () => {
    const { requests, load, answer } = server();
    const { store } = await following(collectionStore, "orders", { load, initial: [{ id: 1 }] });
    await answer(0, "no array");
    requests[1].reject(new Error("500"));
    await settle();
    assert.deepEqual([store.getSnapshot().status, store.getSnapshot().error.message, items(store)], ["failed", "500", [{ id: 1 }]]);
    store.reload();
    await answer(2, [{ id: 2 }]);
    assert.deepEqual([store.getSnapshot().status, store.getSnapshot().error, items(store)], ["current", null, [{ id: 2 }]]);
    store.reload();
    await answer(3, []);
    assert.deepEqual(items(store), []);
  });

  it("shows what the server has, and why it is not live, where the pattern is refused", async () => {
    mock.method(console, "error", () => {});
    const { gateway, gate } = await live();
    const store = collectionStore(gate, "orders", { load: () => [{ id: 1 }] });
    listen(store);
    await gateway.answer("subscribe", { ok: false, error: { code: "forbidden", message: "no" } });
    await settle();
    assert.deepEqual([store.getSnapshot().status, store.getSnapshot().error.code, items(store)], ["failed", "forbidden", [{ id: 1 }]]);
  });

  it("aborts its load when the last listener leaves, and takes no answer then", async () => {
    const { requests, load, answer } = server();
    const { store, reports } = await following(collectionStore, "orders", { load });
    reports.leave();
    await settle();
    assert.equal(requests[0].signal.aborted, true);
    await answer(0, [{ id: 1 }]);
    assert.deepEqual(items(store), []);
    store.reload();
    assert.equal(requests.length, 1);
  });

  it("holds at most its limit of items, and counts those that it drops", async () => {
    const { gateway, store } = await following(collectionStore, "orders", { limit: 2 });
    for (const n of [1, 2, 3]) await happen(gateway, `orders.${n}.created`, { n }, 100 + n);
    assert.deepEqual(items(store).map(({ n }) => n), [2, 3]);
    assert.equal(store.getSnapshot().dropped, 1);
  });

  it("takes any id, and reads events as its mapping says", async () => {
    const { gateway, gate } = begin();
    const ids = ["constructor", "__proto__", "toString", "undefined"];
    const mapping = ({ data: { key, ...attributes } }) => ({ op: "upsert", id: key, attributes });
    const store = collectionStore(gate, "shop", { pattern: "shop.#", mapping, idAttribute: "key" });
    listen(store);
    await gateway.welcome();
    for (const [n, key] of ids.entries()) await happen(gateway, "shop.a.b.c", JSON.parse(`{"key":"${key}","__proto__":{"bad":1}}`), 101 + n);
    assert.deepEqual(items(store).map((item) => item.key), ids);
    assert.equal(items(store)[0].bad, undefined);
  });

  it("stays behind where items came with the page and nothing loads them", async () => {
    const { store } = await following(collectionStore, "orders", { initial: [{ id: 1 }] });
    assert.equal(store.getSnapshot().status, "behind");
  });
});

describe("a store of a live collection that publishes", () => {
  const shown = (store) => [store.getSnapshot().items.map(({ id, n }) => `${id}:${n}`), store.getSnapshot().pending];

  const begun = () => following(collectionStore, "orders", { load: () => [{ id: "1", n: 0 }] });

  it("shows a change at once, and keeps it when its event comes before or after the receipt", async () => {
    const { gateway, store } = await begun();
    for (const isFirst of [true, false]) {
      const sent = store.publish("orders.1.updated", { n: 1 });
      await settle();
      assert.deepEqual(shown(store), [["1:1"], ["1"]]);
      const { body } = gateway.requests[0];
      if (isFirst) gateway.event("orders.1.updated", { n: 1 }, 201, { id: body.id });
      await gateway.answer("publish", { ok: true, id: body.id, epoch: "e1", offset: isFirst ? 201 : 202, duplicate: false });
      await sent;
      await settle();
      assert.deepEqual(shown(store), [["1:1"], isFirst ? [] : ["1"]]);
      if (!isFirst) await happen(gateway, "orders.1.updated", { n: 1 }, 202, { id: body.id });
      assert.deepEqual(shown(store), [["1:1"], []]);
    }
  });

  it("undoes a refused change, and rejects with the error", async () => {
    const { gateway, store } = await begun();
    const refused = [store.publish("orders.2.created", { n: 5 }), store.publish("orders.1.deleted", null)];
    const rejected = refused.map((each) => assert.rejects(each, { code: "forbidden" }));
    await settle();
    assert.deepEqual(shown(store), [["2:5"], ["2", "1"]]);
    for (let nth = 0; nth < 2; nth++) await gateway.answer("publish", { ok: false, error: { code: "forbidden", message: "no", retry: false } });
    await Promise.all(rejected);
    await settle();
    assert.deepEqual(shown(store), [["1:0"], []]);
  });

  it("publishes without listeners as often as it is asked to, after it had some", async () => {
    const { gate } = begin();
    const store = collectionStore(gate, "orders", { load: () => [], outbox: { publish: async () => ({ epoch: "e1", offset: 1 }) } });
    const { leave } = listen(store);
    await settle();
    leave();
    await settle();
    for (let nth = 0; nth <= 1000; nth++) await store.publish("orders.1.updated", { n: nth });
  });

  it("shows no change of another pattern, and refuses too many publishes", async () => {
    const { gateway, store } = await begun();
    store.publish("others.1.updated", { n: 9 }).catch(() => {});
    await settle();
    assert.deepEqual(shown(store), [["1:0"], []]);
    await assert.rejects(store.publish("orders..1", {}), { code: "invalid_topic" });
    for (let nth = 0; nth < 1000; nth++) store.publish("orders.1.updated", { n: nth }).catch(() => {});
    await assert.rejects(store.publish("orders.1.updated", {}), { code: "limit_reached", parts: { name: "pending", limit: 1000 } });
    gateway.cut();
  });

  for (let seed = 1; seed <= 60; seed++) {
    it(`shows what the server knows and over it what is under way, whatever comes first (history ${seed})`, async () => {
      const below = belowFrom(seed);
      const { gateway, store } = await begun();
      /** The oracle: the log, and in order the page's pending steps. @type {any[]} */
      const log = [];
      /** @type {any[]} */
      let open = [];
      const apply = (/** @type {Map<string, number>} */ items, /** @type {any} */ { key, verb, n }) => {
        if (verb === "deleted") items.delete(key);
        else if (verb === "updated" || items.has(key)) items.set(key, n);
      };
      const expected = () => {
        const items = new Map([["1", 0]]);
        for (const event of log) if (event.reports) apply(items, event);
        for (const change of open) if (!change.reports) apply(items, change);
        return [...items].map(([key, n]) => `${key}:${n}`).sort();
      };
      let reports = 0;
      const tellNext = () => {
        const event = log[reports];
        if (!event) return;
        event.reports = true;
        // All acknowledged events before it in the log have come too.
        gateway.event(`orders.${event.key}.${event.verb}`, event.verb === "deleted" ? null : { n: event.n }, 300 + reports++, { id: event.id });
      };
      for (let step = 0; step < 60; step++) {
        const change = { key: `${1 + below(3)}`, verb: ["updated", "shipped", "deleted"][below(3)], n: step, reports: false, id: `o${step}` };
        const act = below(5);
        if (act === 0) log.push(change);
        else if (act === 1) {
          store.publish(`orders.${change.key}.${change.verb}`, change.verb === "deleted" ? null : { n: step }).catch(() => {});
          await settle();
          const request = gateway.requests.pop();
          open.push(Object.assign(change, { id: request.body.id, request }));
        } else if (act === 2) tellNext();
        else {
          const nth = open.findIndex(({ request }) => request);
          const mine = open[nth];
          if (!mine) continue;
          const { request } = mine;
          mine.request = undefined;
          if (act === 3) {
            log.push(mine);
            // The event may come first.
            if (below(2)) while (!mine.reports) tellNext();
            request.acknowledge(null, { ok: true, id: mine.id, epoch: "e1", offset: 300 + log.indexOf(mine), duplicate: false });
          } else {
            open.splice(nth, 1);
            request.acknowledge(null, { ok: false, error: { code: "forbidden", message: "no", retry: false } });
          }
        }
        await settle();
        open = open.filter((each) => !each.reports);
        assert.deepEqual(shown(store)[0].sort(), expected(), `step ${step}`);
      }
      for (const { request } of open) request?.acknowledge(null, { ok: false, error: { code: "forbidden", message: "no", retry: false } });
      open = open.filter(({ request }) => !request);
      while (reports < log.length) tellNext();
      await settle();
      assert.deepEqual([shown(store)[0].sort(), shown(store)[1]], [expected(), []]);
    });
  }
});

describe("a store of presence", () => {
  const part = { ok: true, topic: "rooms.7", copy: "c1", version: 0, count: 1, members: [["ann", 1, 1000, null]], next: null };

  it("enters with its first listener and leaves when the last has left, also one that comes back in the same turn", async () => {
    const { gateway, gate } = begin();
    const store = presenceStore(gate, "rooms.7", { meta: 1 });
    await gateway.welcome();
    assert.equal(gateway.requests.length, 0);
    const first = store.subscribe(() => {});
    await settle();
    assert.deepEqual(await gateway.answer("presence", part), { topic: "rooms.7", act: "enter", meta: 1 });
    await settle();
    assert.deepEqual(store.getSnapshot().members.map(({ user }) => user), ["ann"]);
    first();
    const second = store.subscribe(() => {});
    await settle();
    assert.equal(gateway.requests.length, 0);
    second();
    await settle();
    assert.deepEqual(await gateway.answer("presence"), { topic: "rooms.7", act: "leave" });
  });

  it("that only watches enters with what it says about its user, and enters again when it comes back", async () => {
    const { gateway, gate } = begin();
    const store = presenceStore(gate, "rooms.7", { enter: false });
    await gateway.welcome();
    let leave = store.subscribe(() => {});
    await settle();
    assert.equal((await gateway.answer("presence", part)).act, "watch");
    await settle();
    store.update("here");
    assert.deepEqual(await gateway.answer("presence", part), { topic: "rooms.7", act: "enter", meta: "here" });
    leave();
    await settle();
    assert.equal((await gateway.answer("presence")).act, "leave");
    leave = store.subscribe(() => {});
    await settle();
    assert.deepEqual(await gateway.answer("presence", part), { topic: "rooms.7", act: "enter", meta: "here" });
    leave();
  });

  it("says why it cannot enter, and enters nothing without a topic or while it is not enabled", async () => {
    const { gateway, gate } = begin();
    await gateway.welcome({ limits: { max_presence_meta_bytes: 4 } });
    const large = presenceStore(gate, "rooms.7", { meta: "too large" });
    const stores = [large, presenceStore(gate, null), presenceStore(gate, "rooms.7", { enabled: false })];
    for (const store of stores) store.subscribe(() => {});
    await settle();
    assert.deepEqual(stores.map((store) => store.getSnapshot().status), ["refused", "waiting", "waiting"]);
    assert.deepEqual([large.getSnapshot().error?.code, gateway.requests.length], ["payload_too_large", 0]);
    assert.throws(() => presenceStore(gate, "rooms..7"), { code: "invalid_topic" });
  });
});

describe("a store of the status", () => {
  it("is the gate's status, and reports the last one of each turn", async () => {
    const { gateway, gate, store, reports } = await following(statusStore);
    assert.deepEqual([store.getServerSnapshot(), store.getSnapshot()], ["idle", "live"]);
    const { count } = reports;
    gateway.cut();
    await settle();
    assert.equal(store.getSnapshot(), "waiting");
    assert.equal(reports.count, count + 1);
    reports.leave();
    await settle();
    gate.close();
    assert.equal(store.getSnapshot(), "closed", "without listeners too");
  });
});
