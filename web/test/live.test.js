/** LiveModel, LiveCollection and NotificationList, fed by a real dispatcher and answered by a server that a test plays. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it, mock } from "node:test";
import Backbone from "backbone";
import { LiveCollection, LiveModel, NotificationList } from "#headgate/backbone";
import { Dispatcher } from "#headgate";

/** A gate as far as these need one: a dispatcher that a test feeds. */
class Feed extends Dispatcher {
  #offset = 0;
  /** What the gateway was told that was shown: {ids, take(), refuse(error)}, one for each request. */
  told = [];

  seen(ids) {
    return new Promise((take, refuse) => this.told.push({ ids, take, refuse }));
  }

  send(topic, data, more = {}) {
    const offset = ++this.#offset;
    return this.dispatch(topic, data, (pattern) => ({ topic, data, id: `e${offset}`, time: offset, offset, pattern, ...more }));
  }
}

/** Requests of Backbone that wait for the test: {method, data, succeed(answer), fail(status)}. */
let requests;
let feed;

const sync = (method, model, options) => {
  requests.push({
    method,
    data: options.attrs ?? model.toJSON(),
    succeed: (answer) => options.success(answer),
    fail: () => options.error({ status: 500 }),
  });
  return {};
};

const Order = LiveModel.extend({ sync, urlRoot: "/orders" });
const Orders = LiveCollection.extend({ sync, model: Order, url: "/orders", topic: "orders" });

/** Record the values that an attribute takes. */
function valuesOf(model, name) {
  const values = [];
  model.on(`change:${name}`, (_model, value) => values.push(value));
  return values;
}

async function until(condition) {
  const end = performance.now() + 30_000;
  while (!condition()) {
    if (performance.now() > end) throw new Error("not reached in 30 s");
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

beforeEach(() => {
  requests = [];
  feed = new Feed();
});

describe("LiveModel", () => {
  it("takes attributes of its own events, and no others", () => {
    const order = new Order({ id: 42, status: "new" }, { gate: feed, topic: "orders" });
    feed.send("orders.42.updated", { status: "packed" });
    feed.send("orders.43.updated", { status: "other" });
    feed.send("orders.42.shipped", { carrier: "UPS" });
    feed.send("orders.42.note", "not an object");
    assert.deepEqual(order.attributes, { id: 42, status: "packed", carrier: "UPS" });
  });

  it("ignores stale versions, of events and of answers", () => {
    const order = new Order({ id: 42, version: 3, status: "now" }, { gate: feed, topic: "orders" });
    feed.send("orders.42.updated", { version: 3, status: "same version" });
    feed.send("orders.42.updated", { version: 2, status: "older" });
    order.fetch();
    feed.send("orders.42.updated", { version: 5, status: "newest" });
    requests[0].succeed({ id: 42, version: 4, status: "answer from before" });
    assert.deepEqual(order.attributes, { id: 42, version: 5, status: "newest" });
  });

  it("can be told which attribute is the version", () => {
    const Revised = Order.extend({ versionAttribute: "rev" });
    const one = new Revised({ id: 1, rev: 2 }, { gate: feed, topic: "orders" });
    const two = new Order({ id: 2, rev: 2 }, { gate: feed, topic: "orders", versionAttribute: "rev" });
    for (const id of [1, 2]) feed.send(`orders.${id}.updated`, { rev: 1, x: 1 });
    assert.deepEqual([one.has("x"), two.has("x")], [false, false]);
  });

  it("is destroyed by a deletion, for its views and collections, without a request", () => {
    const order = new Order({ id: 42, version: 2 }, { gate: feed, topic: "orders" });
    const collection = new Backbone.Collection([order]);
    feed.send("orders.42.deleted", { version: 1 });
    assert.equal(collection.length, 1);
    feed.send("orders.42.deleted", { version: 3 });
    assert.equal(collection.length, 0);
    assert.equal(requests.length, 0);
    assert.equal(feed.send("orders.42.updated", {}), 0);
  });

  it("does not flicker while a save is under way: older events wait, other attributes do not", () => {
    const order = new Order({ id: 42, version: 1, status: "new", note: "" }, { gate: feed, topic: "orders" });
    const statuses = valuesOf(order, "status");
    order.save({ status: "mine" });
    feed.send("orders.42.updated", { version: 2, status: "new", note: "theirs" });
    assert.equal(order.get("note"), "theirs");
    requests[0].succeed({ id: 42, version: 3, status: "mine", note: "theirs" });
    feed.send("orders.42.updated", { version: 3, status: "mine", note: "theirs" });
    assert.deepEqual(statuses, ["mine"]);
    assert.equal(order.get("version"), 3);
  });

  it("does not flicker when the answer says nothing and our own event comes later", () => {
    const order = new Order({ id: 42, version: 1, status: "new" }, { gate: feed, topic: "orders" });
    const statuses = valuesOf(order, "status");
    order.save({ status: "mine" });
    feed.send("orders.42.updated", { version: 2, status: "between" });
    requests[0].succeed();
    feed.send("orders.42.updated", { version: 3, status: "mine" });
    assert.deepEqual(statuses, ["mine"]);
  });

  it("shows what came after our own change, even if that was before our answer", () => {
    const order = new Order({ id: 42, version: 1, status: "new" }, { gate: feed, topic: "orders" });
    const statuses = valuesOf(order, "status");
    order.save({ status: "mine" });
    feed.send("orders.42.updated", { version: 2, status: "mine" });
    feed.send("orders.42.updated", { version: 3, status: "theirs" });
    requests[0].succeed({ id: 42, version: 2, status: "mine" });
    assert.deepEqual(statuses, ["mine", "theirs"]);
    assert.equal(order.get("version"), 3);
  });

  it("puts a failed edit back to what the server last said", () => {
    const order = new Order({ id: 42, version: 1, status: "new", note: "a" }, { gate: feed, topic: "orders" });
    order.save({ status: "mine", note: "b" });
    feed.send("orders.42.updated", { version: 2, status: "theirs" });
    requests[0].fail();
    assert.deepEqual(order.attributes, { id: 42, version: 2, status: "theirs", note: "a" });
  });

  it("keeps the last of several overlapping edits until all have ended", () => {
    const order = new Order({ id: 42, status: "new" }, { gate: feed, topic: "orders" });
    const statuses = valuesOf(order, "status");
    order.save({ status: "one" });
    order.save({ status: "two" });
    feed.send("orders.42.updated", { status: "one" });
    requests[0].succeed({ status: "one" });
    requests[1].succeed({ status: "two" });
    assert.deepEqual(statuses, ["one", "two"]);
  });

  it("goes back to the save before when only the second fails", () => {
    const order = new Order({ id: 42, status: "new" }, { gate: feed, topic: "orders" });
    order.save({ status: "one" });
    order.save({ status: "two" });
    requests[0].succeed();
    requests[1].fail();
    assert.equal(order.get("status"), "one");
  });

  it("keeps Backbone's own conventions of save", () => {
    const calls = [];
    const order = new Order({ id: 42, status: "new" });
    order.validate = (attributes) => (attributes.status === "bad" ? "bad status" : undefined);
    assert.equal(order.save({ status: "bad" }), false);
    assert.equal(order.get("status"), "new");
    order.save("status", "by key", { success: (model) => calls.push(["success", model === order]) });
    requests[0].succeed({ status: "answered" });
    assert.equal(order.get("status"), "answered");
    order.save({ status: "waits" }, { wait: true, error: () => calls.push(["error"]) });
    assert.equal(order.get("status"), "answered");
    requests[1].fail();
    order.save({ status: "waits" }, { wait: true });
    requests[2].succeed();
    assert.equal(order.get("status"), "waits");
    order.set("status", "set before").save();
    requests[3].succeed();
    assert.equal(order.get("status"), "set before");
    order.save({ status: "patched" }, { patch: true });
    assert.deepEqual([requests[4].method, requests[4].data], ["patch", { status: "patched" }]);
    assert.deepEqual(calls, [["success", true], ["error"]]);
  });

  it("fetches again only when events are gone for good, once for several gaps", async () => {
    const order = new Order({ id: 42 }, { gate: feed, topic: "orders", resyncSpreadMs: 5 });
    feed.trigger("delivery:gap", { recoverable: true });
    feed.trigger("connection:up", { resumed: true });
    feed.trigger("connection:up", { resumed: null });
    feed.trigger("delivery:gap", { recoverable: false });
    feed.trigger("delivery:gap", { recoverable: false });
    feed.trigger("connection:up", { resumed: false });
    await until(() => requests.length > 0);
    feed.trigger("delivery:gap", { recoverable: false });
    requests[0].succeed({ id: 42, status: "fetched" });
    await until(() => requests.length > 1);
    requests[1].fail();
    assert.deepEqual(requests.map(({ method }) => method), ["read", "read"]);
    assert.equal(order.get("status"), "fetched");
    order.unfollow();
    assert.equal(feed.send("orders.42.updated", { status: "after" }), 0);
  });
});

describe("LiveCollection", () => {
  it("adds, changes and removes by convention", () => {
    const orders = new Orders([{ id: 1, status: "new" }], { gate: feed });
    const seen = [];
    orders.on("all", (name, model) => seen.push([name, model.id]));
    feed.send("orders.1.updated", { status: "packed" });
    feed.send("orders.2.created", { id: 2, status: "new" });
    feed.send("orders.9.shipped", { carrier: "for an unknown order" });
    feed.send("orders.1.deleted", null);
    feed.send("orders.x.y.z", { id: 3 });
    assert.deepEqual(orders.toJSON(), [{ id: 2, status: "new" }]);
    assert.ok(orders.at(0) instanceof Order);
    const backbone = ["change:status", "change", "add", "update", "remove", "update", "destroy"];
    assert.deepEqual(seen.map(([name]) => name).sort(), backbone.sort());
  });

  it("takes the id from the topic when the data has none", () => {
    const orders = new Orders([{ id: 7, status: "new" }], { gate: feed });
    feed.send("orders.7.updated", { status: "packed" });
    feed.send("orders.8.created", { status: "new" });
    assert.deepEqual(orders.toJSON(), [{ id: 7, status: "packed" }, { id: "8", status: "new" }]);
  });

  it("takes ids that are names of every object", () => {
    const orders = new Orders(null, { gate: feed });
    const ids = ["__proto__", "constructor", "hasOwnProperty"];
    for (const id of ids) feed.send(`orders.${id}.created`, { status: "new" });
    for (const id of ids) feed.send(`orders.${id}.updated`, { status: "packed" });
    assert.deepEqual(orders.map((order) => [order.id, order.get("status")]), ids.map((id) => [id, "packed"]));
    assert.equal({}.status, undefined);
  });

  it("takes a mapping instead of the convention", () => {
    const mapping = ({ data }) => (data.gone ? { op: "remove", id: data.key } : { op: data.what, id: data.key, attributes: { id: data.key, v: data.v } });
    const orders = new Orders(null, { gate: feed, pattern: "shop.#", mapping });
    feed.send("shop.a", { what: "upsert", key: 1, v: 1 });
    feed.send("shop.b", { what: "ignore", key: 1, v: 2 });
    feed.send("shop.c", { what: "upsert", key: 2, v: 3 });
    feed.send("shop.d", { gone: true, key: 1 });
    assert.deepEqual(orders.toJSON(), [{ id: 2, v: 3 }]);
  });

  it("follows with plain Backbone models too", () => {
    const Plain = LiveCollection.extend({ model: Backbone.Model });
    const orders = new Plain([{ id: 1, version: 2 }], { gate: feed, topic: "orders" });
    feed.send("orders.1.updated", { version: 1, status: "stale" });
    feed.send("orders.1.updated", { version: 3, status: "new" });
    feed.send("orders.2.created", { id: 2 });
    feed.send("orders.2.removed", {});
    assert.deepEqual(orders.toJSON(), [{ id: 1, version: 3, status: "new" }]);
  });

  it("is right after a fetch that was answered from before the events", () => {
    const orders = new Orders([{ id: 1, version: 1 }, { id: 2, version: 1 }], { gate: feed });
    orders.fetch();
    feed.send("orders.1.updated", { id: 1, version: 2, status: "newer" });
    feed.send("orders.2.deleted", { id: 2, version: 2 });
    feed.send("orders.3.created", { id: 3, version: 1 });
    assert.deepEqual(orders.pluck("id"), [1, 3]);
    requests[0].succeed([{ id: 1, version: 1, status: "older" }, { id: 2, version: 1 }]);
    assert.deepEqual(orders.toJSON().sort((a, b) => a.id - b.id), [{ id: 1, version: 2, status: "newer" }, { id: 3, version: 1 }]);
  });

  it("does not list twice what it is just creating", () => {
    const orders = new Orders(null, { gate: feed });
    const created = orders.create({ status: "new" });
    feed.send("orders.43.created", { id: 43, version: 1, status: "new" });
    feed.send("orders.44.created", { id: 44, version: 1, status: "theirs" });
    assert.equal(orders.length, 1);
    requests[0].succeed({ id: 43, version: 1, status: "new" });
    assert.deepEqual(orders.pluck("id"), [43, 44]);
    assert.equal(orders.get(43), created);
  });

  it("takes what waited when the creation fails", () => {
    const orders = new Orders(null, { gate: feed });
    orders.create({ status: "new" }, { wait: true });
    feed.send("orders.44.created", { id: 44 });
    requests[0].fail();
    assert.deepEqual(orders.pluck("id"), [44]);
  });

  it("fetches again when events are gone for good", async () => {
    const orders = new Orders(null, { gate: feed, resyncSpreadMs: 1 });
    feed.trigger("delivery:gap", { recoverable: false });
    await until(() => requests.length === 1);
    requests[0].succeed([{ id: 5 }]);
    assert.deepEqual(orders.pluck("id"), [5]);
  });

  it("unsubscribes when it stops following", () => {
    const orders = new Orders(null, { gate: feed });
    orders.unfollow();
    assert.equal(feed.send("orders.1.created", { id: 1 }), 0);
    orders.follow(feed);
    assert.equal(feed.send("orders.1.created", { id: 1 }), 1);
  });
});

describe("NotificationList", () => {
  it("lists what was chosen, newest first, once each, bounded", () => {
    const list = new NotificationList(null, { gate: feed, patterns: ["orders.*.shipped", "orders.42.*"], limit: 3 });
    for (const id of [41, 42, 43, 44]) feed.send(`orders.${id}.shipped`, { id });
    feed.send("orders.44.packed", {});
    assert.deepEqual(list.pluck("topic"), ["orders.44.shipped", "orders.43.shipped", "orders.42.shipped"]);
  });

  it("lists an event that comes again once", () => {
    const list = new NotificationList(null, { gate: feed, patterns: ["a"] });
    feed.send("a", 1, { id: "same" });
    feed.send("a", 1, { id: "same" });
    assert.equal(list.length, 1);
  });

  it("counts what is not read", () => {
    const counts = [];
    const list = new NotificationList(null, { gate: feed, patterns: ["a"] });
    list.on("unread", (count) => counts.push(count));
    feed.send("a", 1);
    feed.send("a", 2);
    list.read(list.at(0).id);
    list.readAll();
    assert.deepEqual(counts, [1, 2, 1, 0]);
    assert.equal(list.unread, 0);
  });

  it("subscribes and unsubscribes as the user chooses", () => {
    const list = new NotificationList(null, { gate: feed });
    list.choose("a").choose("a").choose("b");
    assert.deepEqual(list.chosen, ["a", "b"]);
    list.dismiss("a").dismiss("never");
    assert.equal(feed.send("a", 1), 0);
    assert.equal(feed.send("b", 1), 1);
    assert.deepEqual(list.chosen, ["b"]);
  });

  describe("tells the gateway what was shown", () => {
    let list;
    const ids = (first, count) => Array.from({ length: count }, (_, index) => `e${first + index}`);
    /** Let so much time pass, and then whatever follows from it. */
    const pass = async (ms) => {
      mock.timers.tick(ms);
      await new Promise(setImmediate);
    };
    /** Send so many events, and show them all. */
    const show = (count) => {
      for (let sent = 0; sent < count; sent++) feed.send("a", sent);
      list.shown(...list.models);
    };

    beforeEach(() => {
      mock.timers.enable({ apis: ["setTimeout"] });
      list = new NotificationList(null, { gate: feed, patterns: ["a"], limit: 2000 });
    });
    afterEach(() => mock.timers.reset());

    it("a second after the first, all together, each once", async () => {
      show(2);
      list.shown(list.at(0), "e1", "never listed");
      await pass(999);
      feed.send("a", 3);
      list.read("e3");
      assert.deepEqual(feed.told, []);
      await pass(1);
      assert.deepEqual(feed.told.map((each) => each.ids.toSorted()), [ids(1, 3)]);
      feed.told[0].take();
      list.readAll();
      await pass(60_000);
      assert.equal(feed.told.length, 1);
    });

    it("not what was only listed, and nothing that has no event's id", async () => {
      feed.send("a", 1);
      feed.send("a", 2, { id: null });
      list.add({ id: 7, read: false });
      list.add({ id: "an id with spaces", read: false });
      list.shown(list.at(0), 7, "an id with spaces");
      await pass(60_000);
      assert.deepEqual(feed.told, []);
    });

    it("a hundred in a request, one request at a time", async () => {
      show(250);
      await pass(1000);
      await pass(60_000);
      assert.equal(feed.told.length, 1);
      for (const request of [0, 1, 2]) {
        feed.told[request].take();
        await pass(0);
        await pass(1000);
      }
      assert.deepEqual(feed.told.map((each) => each.ids.length), [100, 100, 50]);
      assert.equal(new Set(feed.told.flatMap((each) => each.ids)).size, 250);
    });

    it("again when it failed, later and later", async () => {
      show(1);
      const waits = [];
      for (let failed = 0; failed < 8; failed++) {
        let waited = 0;
        while (feed.told.length === failed) {
          await pass(1000);
          waited += 1;
        }
        waits.push(waited);
        feed.told[failed].refuse({ retry: true });
        await pass(0);
      }
      assert.deepEqual(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
      assert.deepEqual(feed.told.at(-1).ids, ["e1"]);
    });

    it("soon after a reconnect, with what came meanwhile", async () => {
      show(1);
      for (const wait of [1000, 2000, 4000]) {
        await pass(wait);
        feed.told.at(-1).refuse({ retry: true });
        await pass(0);
      }
      show(1);
      feed.trigger("connection:up", {});
      await pass(1000);
      assert.deepEqual(feed.told.at(-1).ids, ["e1", "e2"]);
      feed.trigger("connection:up", {});
      await pass(1000);
      assert.equal(feed.told.length, 4);
    });

    it("no more of it when the gateway refuses, and says so", async () => {
      const untold = [];
      list.on("untold", (lost) => untold.push(lost));
      const error = { code: "forbidden", retry: false };
      show(3);
      await pass(1000);
      feed.told[0].refuse(error);
      await pass(0);
      show(1);
      await pass(60_000);
      assert.deepEqual(untold, [{ count: 3, error }]);
      assert.equal(feed.told.length, 1);
    });

    it("the newest thousand when it cannot tell, and says how many it gave up", async () => {
      let lost = 0;
      list.on("untold", ({ count }) => {
        lost += count;
      });
      for (let sent = 0; sent < 1010; sent++) show(1);
      assert.equal(lost, 10);
      await pass(1000);
      assert.deepEqual([feed.told[0].ids[0], feed.told[0].ids.length], ["e11", 100]);
    });
  });
});
