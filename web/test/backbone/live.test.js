/** LiveModel, LiveCollection and NotificationList, fed by a real dispatcher or a real gate, and answered by a server that a test plays. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it, mock } from "node:test";
import Backbone from "backbone";
import { connect, Dispatcher } from "#headgate";
import { LiveCollection, LiveModel, NotificationList } from "#headgate/backbone";
import { checkOptions } from "../../src/language/options.js";
import { FakeGateway, settle } from "../fake-gateway.js";

/** A gate as far as these need one: a dispatcher that a test feeds. */
class Feed extends Dispatcher {
  #offset = 0;
  /** Whether subscriptions are acknowledged. */
  acknowledges = false;
  _loads = new Set();
  _checkOptions = checkOptions;

  _position() {
    return { epoch: "e1", offset: this.#offset };
  }

  _subscribe(pattern, _options, handler) {
    const context = {};
    this.on(pattern, handler, context);
    return { close: () => this.off(pattern, null, context) };
  }

  _wired = (pattern) => pattern;

  subscribed() {
    return this.acknowledges ? Promise.resolve() : new Promise(() => {});
  }

  send(topic, data, more = {}) {
    const offset = ++this.#offset;
    return this.dispatch(topic, data, (pattern) => ({ topic, data, id: `e${offset}`, time: offset, offset, pattern, ...more }));
  }
}

/** Requests of Backbone that wait for the test: {method, data, options, succeed(answer), fail(status)}. */
let requests;
let feed;
/** Errors that were reported like uncaught ones. */
let reported;

const sync = (method, model, options) => {
  requests.push({
    method,
    data: options.attrs ?? model.toJSON(),
    options,
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

/** Names and words that Object, Backbone or this library has for itself. */
const HOSTILE = ["constructor", "__proto__", "hasOwnProperty", "toString", "valueOf", "_byId", "_reset", "undefined", "null", "length", "c1", "c2", "c3", "0"];

/** JSON that a model has to live with. */
const PAYLOADS = [
  '{"toString": 1, "valueOf": 2}', '{"constructor": 1, "hasOwnProperty": 2, "prototype": 3}', '{"cid": "c1", "idAttribute": "status", "collection": 1}',
  '{"__proto__": {"polluted": true, "status": "inherited"}}', '{"id": {"toString": 1}}', '{"id": null}', '{"id": ["9"]}',
  '{"version": {"toString": 1, "valueOf": 2}}', '{"_byId": 1, "_events": 2, "attributes": 3, "_callback": 4}',
];

beforeEach(() => {
  requests = [];
  feed = new Feed();
  reported = [];
  mock.method(console, "error", (error) => reported.push(error));
});

afterEach(() => mock.restoreAll());

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

  it("reads the version from the attribute that it was given", () => {
    const Revised = Order.extend({ versionAttribute: "rev" });
    const one = new Revised({ id: 1, rev: 2 }, { gate: feed, topic: "orders" });
    const two = new Order({ id: 2, rev: 2 }, { gate: feed, topic: "orders", versionAttribute: "rev" });
    for (const id of [1, 2]) feed.send(`orders.${id}.updated`, { rev: 1, x: 1 });
    assert.deepEqual([one.has("x"), two.has("x")], [false, false]);
  });

  it("is right after a fetch that was answered from before the events", () => {
    const order = new Order({ id: 42, status: "new" }, { gate: feed, topic: "orders" });
    order.fetch();
    feed.send("orders.42.updated", { status: "packed" });
    feed.send("orders.42.shipped", { carrier: "UPS" });
    assert.equal(order.get("status"), "packed");
    requests[0].succeed({ id: 42, status: "new", carrier: null });
    assert.deepEqual(order.attributes, { id: 42, status: "packed", carrier: "UPS" });
  });

  it("is destroyed once by a deletion while a fetch is under way", () => {
    const order = new Order({ id: 42 }, { gate: feed, topic: "orders" });
    let destroyed = 0;
    order.on("destroy", () => destroyed++);
    order.fetch();
    feed.send("orders.42.deleted", {});
    requests[0].succeed({ id: 42 });
    assert.equal(destroyed, 1);
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

  it("shows a later change than our own, even if it came before our answer", () => {
    const order = new Order({ id: 42, version: 1, status: "new" }, { gate: feed, topic: "orders" });
    const statuses = valuesOf(order, "status");
    order.save({ status: "mine" });
    feed.send("orders.42.updated", { version: 2, status: "mine" });
    feed.send("orders.42.updated", { version: 3, status: "theirs" });
    requests[0].succeed({ id: 42, version: 2, status: "mine" });
    assert.deepEqual(statuses, ["mine", "theirs"]);
    assert.equal(order.get("version"), 3);
  });

  it("puts a failed edit back to the server's last value", () => {
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

  it("follows events after a save that Backbone could not begin", () => {
    const order = new Order({ id: 42, version: 1, status: "new" }, { gate: feed, topic: "orders" });
    order.sync = () => {
      throw Error("no url");
    };
    assert.throws(() => order.save({ status: "mine" }), /no url/);
    assert.equal(order.get("status"), "new");
    feed.send("orders.42.updated", { version: 2, status: "theirs" });
    assert.equal(order.get("status"), "theirs");
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

  it("fetches again only when events are lost, once for several gaps", async () => {
    feed.acknowledges = true;
    const order = new Order({ id: 42 }, { gate: feed, topic: "orders", resyncSpreadMs: 5 });
    await settle();
    feed.trigger("delivery:gap", { patterns: [], lost: false });
    feed.trigger("connection:up", { resumed: true });
    await settle();
    assert.equal(requests.length, 0);
    feed.trigger("delivery:gap", { patterns: [], lost: true });
    feed.trigger("delivery:gap", { patterns: [], lost: true });
    feed.trigger("connection:up", { resumed: false });
    await until(() => requests.length > 0);
    feed.trigger("delivery:gap", { patterns: [], lost: true });
    requests[0].succeed({ id: 42, status: "fetched" });
    await until(() => requests.length > 1);
    requests[1].fail();
    assert.deepEqual(requests.map(({ method }) => method), ["read", "read"]);
    assert.equal(order.get("status"), "fetched");
    order.unfollow();
    assert.equal(feed.send("orders.42.updated", { status: "after" }), 0);
  });
});

describe("LiveModel and its id", () => {
  const received = (id) => feed.send(`orders.${id}.updated`, { id, received: true });

  it("waits until it has one", () => {
    const order = new Order({ status: "new" }, { gate: feed, topic: "orders" });
    assert.equal(received("undefined"), 0);
    order.save();
    requests[0].succeed({ id: 7, version: 1 });
    assert.equal(received(7), 1);
    assert.deepEqual(order.attributes, { id: 7, version: 1, status: "new", received: true });
  });

  it("follows as soon as one is set, however it is", () => {
    const ways = [
      (order) => order.set("id", 7), (order) => order.set({ id: 7 }, { silent: true }), (order) => order.save({ id: 7 }),
      (order) => order.set({ id: 7 }, { parse: true }),
    ];
    for (const way of ways) {
      const order = new Order({}, { gate: feed, topic: "orders" });
      way(order);
      assert.equal(received(7), 1, way);
      order.unfollow();
    }
  });

  it("moves its subscription when it changes, and leaves it with it", () => {
    const order = new Order({ id: 1 }, { gate: feed, topic: "orders" });
    order.set("id", 2);
    assert.deepEqual([received(1), received(2)], [0, 1]);
    order.clear();
    assert.deepEqual([received(1), received(2)], [0, 0]);
    order.set("id", "1");
    assert.deepEqual([received(1), received(2)], [1, 0]);
    order.unfollow();
    order.set("id", 3);
    assert.equal(received(3), 0);
  });

  it("goes by the model's own name for it", () => {
    const Numbered = Order.extend({ idAttribute: "number" });
    const order = new Numbered({ id: "x" }, { gate: feed, topic: "orders" });
    assert.equal(received("x"), 0);
    order.set("number", 5);
    assert.equal(feed.send("orders.5.updated", { number: 5 }), 1);
  });

  it("is one word of a topic, or there is one error that says so", () => {
    const allowed = /the id is not one word of A-Za-z0-9_-/;
    for (const id of ["a b", "a.b", "*", "#", "", "é", 1.5, {}, ["1"], true, "x".repeat(300)]) {
      const why = id.length === 300 ? /255 bytes/ : allowed;
      assert.throws(() => new Order({ id }, { gate: feed, topic: "orders" }), (error) => error.code === "invalid_pattern" && why.test(error.message), String(id));
    }
    assert.throws(() => new Order({ id: 1 }, { gate: feed }), { code: "invalid_pattern" });
    assert.equal(received("1"), 0);
  });

  it("is reported where it is set, when it is not a word", () => {
    const reports = [];
    feed.on("delivery:error", ({ error }) => reports.push(error));
    const order = new Order({ status: "new" }, { gate: feed, topic: "orders" });
    const saved = [];
    order.save({}, { success: () => saved.push(order.id) });
    requests[0].succeed({ id: "a b" });
    assert.deepEqual([saved, reports.length, reported.length], [["a b"], 1, 1]);
    assert.equal(reports[0].code, "invalid_pattern");
    order.set("id", "ab");
    assert.equal(received("ab"), 1);
    assert.equal(reports.length, 1);
  });

  it("may be a name of every object", () => {
    for (const id of HOSTILE) {
      const order = new Order({ id }, { gate: feed, topic: "orders" });
      assert.equal(feed.send(`orders.${id}.updated`, { status: "packed" }), 1, id);
      assert.equal(order.get("status"), "packed", id);
    }
  });

  it("is not changed by data that is not an object", () => {
    const order = new Order({ id: 1 }, { gate: feed, topic: "orders" });
    for (const text of PAYLOADS) {
      feed.send("orders.1.updated", JSON.parse(text));
      assert.deepEqual([order.id, order.get("status"), Object.getPrototypeOf(order.attributes)], [1, undefined, Object.prototype], text);
    }
    assert.deepEqual(reported, []);
  });

  it("does not take the application's own handlers along", () => {
    const order = new Order({ id: 1 }, { gate: feed, topic: "orders" });
    const heardByApplication = [];
    order.listenTo(feed, "orders.1.*", (data) => heardByApplication.push(data.id));
    order.set("id", 2);
    received(1);
    order.unfollow();
    received(1);
    assert.deepEqual(heardByApplication, [1, 1]);
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
    for (const model of [Order, Backbone.Model]) {
      const orders = new Orders(null, { gate: feed, model });
      for (const id of HOSTILE) feed.send(`orders.${id}.created`, { status: "new" });
      for (const id of HOSTILE) feed.send(`orders.${id}.updated`, { status: "packed" });
      feed.send("orders.nobody.shipped", { status: "shipped" });
      assert.deepEqual(orders.map((order) => [order.id, order.get("status")]), HOSTILE.map((id) => [id, "packed"]));
      assert.deepEqual(orders.pluck("id").filter((id) => orders.get(id)?.id !== id), []);
      for (const id of HOSTILE) feed.send(`orders.${id}.deleted`, null);
      assert.equal(orders.length, 0);
    }
    assert.equal({}.status, undefined);
    assert.deepEqual(reported, []);
  });

  it("finds no order that it does not have", () => {
    const orders = new Orders([{ id: 1 }]);
    const found = [...HOSTILE, null, undefined, {}, { id: 2 }, { toString: 1 }, new Order({ id: 2 })].filter((key) => orders.get(key));
    assert.deepEqual(found, []);
  });

  it("finds an order by its id, its cid, itself and its attributes, as Backbone does", () => {
    const orders = new Orders([{ id: 1 }, { id: "two" }]);
    const unsaved = orders.add({ status: "new" });
    const [one, two] = orders.models;
    assert.deepEqual([orders.get(1), orders.get("1"), orders.get(one), orders.get(one.cid), orders.get({ id: 1, status: "x" })], Array(5).fill(one));
    assert.deepEqual([orders.get("two"), orders.get(new Order({ id: "two" }))], [two, two]);
    assert.deepEqual([orders.get(unsaved), orders.get(unsaved.cid), orders.get({ cid: unsaved.cid })], Array(3).fill(unsaved));
    assert.ok(orders.has(1) && !orders.has(3));
  });

  it("takes any JSON that an event brings, and stays a collection", () => {
    for (const model of [Order, Backbone.Model]) {
      const orders = new Orders([{ id: "known", version: 1 }, { id: 1, version: 1, status: "other" }], { gate: feed, model });
      for (const text of PAYLOADS) {
        feed.send("orders.known.updated", JSON.parse(text));
        feed.send("orders.new.created", JSON.parse(text));
        assert.deepEqual(orders.pluck("id"), ["known", 1, "new"], text);
        assert.deepEqual(orders.pluck("status").map(String), ["undefined", "other", "undefined"], text);
        for (const order of orders.models) assert.equal(Object.getPrototypeOf(order.attributes), Object.prototype, text);
        feed.send("orders.new.deleted", {});
      }
      feed.send("orders.known.updated", { version: 2, status: "fine" });
      assert.equal(orders.get("known").get("status"), "fine");
      orders.unfollow();
    }
    assert.equal({}.polluted, undefined);
    assert.deepEqual(reported, []);
  });

  it("applies events that waited for an answer although a handler throws", () => {
    const orders = new Orders(null, { gate: feed });
    orders.fetch();
    for (const id of [1, 2, 3]) feed.send(`orders.${id}.created`, { id });
    orders.on("add", ({ id }) => {
      if (id === 2) throw new Error("of the application");
    });
    requests[0].succeed([]);
    assert.deepEqual(orders.pluck("id"), [1, 2, 3]);
    assert.deepEqual(reported.map(({ message }) => message), ["of the application"]);
  });

  it("says that the topic is missing when it is to follow none", () => {
    for (const options of [{}, { topic: "a b" }, { pattern: "shop.*" }, { mapping: () => null }, { topic: "orders", pattern: "a..b" }]) {
      assert.throws(() => new LiveCollection([], { gate: feed, ...options }), (error) => error.code === "invalid_pattern" && /1 to 8 words of A-Za-z0-9_-/.test(error.message));
    }
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

  it("does not list a model twice that it is creating", () => {
    const orders = new Orders(null, { gate: feed });
    const created = orders.create({ status: "new" });
    feed.send("orders.43.created", { id: 43, version: 1, status: "new" });
    feed.send("orders.44.created", { id: 44, version: 1, status: "theirs" });
    assert.equal(orders.length, 1);
    requests[0].succeed({ id: 43, version: 1, status: "new" });
    assert.deepEqual(orders.pluck("id"), [43, 44]);
    assert.equal(orders.get(43), created);
  });

  it("does not fetch by itself during a creation, whose order the answer would bring a second time", async () => {
    feed.acknowledges = true;
    const orders = new Orders([{ id: 1 }], { gate: feed });
    orders.create({ status: "new" });
    await settle();
    assert.deepEqual(requests.map(({ method }) => method), ["create"]);
    requests[0].succeed({ id: 43 });
    await settle();
    requests[1].succeed([{ id: 1 }, { id: 43 }]);
    assert.deepEqual([requests[1].method, orders.pluck("id")], ["read", [1, 43]]);
  });

  it("takes the events that waited when the creation fails", () => {
    const orders = new Orders(null, { gate: feed });
    orders.create({ status: "new" }, { wait: true });
    feed.send("orders.44.created", { id: 44 });
    requests[0].fail();
    assert.deepEqual(orders.pluck("id"), [44]);
  });

  it("leaves the application's own handlers when it stops following", () => {
    const orders = new Orders(null, { gate: feed });
    const received = [];
    orders.listenTo(feed, "orders.*.*", (data) => received.push(data));
    orders.listenTo(feed, "delivery:gap", (gap) => received.push(gap));
    orders.follow(feed);
    orders.unfollow();
    feed.send("orders.1.created", 1);
    feed.trigger("delivery:gap", 2);
    assert.deepEqual(received, [1, 2]);
    assert.equal(orders.length, 0);
    orders.stopListening(feed);
    assert.equal(feed.send("orders.1.created", 1), 0);
  });
});

describe("a gap", () => {
  /** A collection of one topic, and fifty models of another. */
  function followers() {
    feed.acknowledges = true;
    const orders = new Orders(null, { gate: feed, resyncSpreadMs: 0 });
    for (let id = 1; id <= 50; id++) new Order({ id }, { gate: feed, topic: "stock.ticker", resyncSpreadMs: 0 });
    return orders;
  }

  const GAP = { recoverable: false, lost: true };

  it("makes the followers of its pattern fetch again, and no others", async () => {
    mock.timers.enable({ apis: ["setTimeout"] });
    try {
      const orders = followers();
      await settle();
      feed.trigger("delivery:gap", { ...GAP, patterns: ["stock.ticker.#", "#"] });
      feed.trigger("delivery:gap", { ...GAP, patterns: ["stock.ticker.#", "orders.*.*"] });
      mock.timers.tick(1);
      assert.equal(requests.length, 1);
      requests[0].succeed([{ id: 5 }]);
      assert.deepEqual(orders.pluck("id"), [5]);
      feed.trigger("delivery:gap", { ...GAP, patterns: ["stock.ticker.7.*"] });
      mock.timers.tick(1);
      assert.deepEqual(requests.slice(1).map(({ data }) => data), [{ id: 7 }]);
    } finally {
      mock.timers.reset();
    }
  });

  it("makes everybody fetch again that has an empty list of patterns", async () => {
    followers();
    await settle();
    feed.trigger("delivery:gap", { ...GAP, patterns: [] });
    await until(() => requests.length === 51);
  });
});

describe("NotificationList", () => {
  const item = (/** @type {number} */ at, more = {}) => ({ id: `news/${at}`, kind: "news", data: at, time: at, at, read: false, ...more });
  /** An inbox that a test plays. */
  const played = () => {
    const [listeners, alerted] = [new Set(), new Set()];
    let snapshot = { items: [], unread: 0, hasMore: false, status: "loading", error: null };
    return {
      listeners,
      alerted,
      onAlert: (listener) => {
        alerted.add(listener);
        return () => alerted.delete(listener);
      },
      subscribe: (listener) => {
        listeners.add(listener);
        return () => listeners.delete(listener);
      },
      getSnapshot: () => snapshot,
      show: (items, unread, more = {}) => {
        snapshot = { ...snapshot, items, unread, status: "current", ...more };
        for (const listener of listeners) listener();
      },
    };
  };

  it("has the items of its inbox, in their order, and says what has changed", () => {
    const inbox = played();
    const list = new NotificationList([], { inbox });
    const reports = [];
    list.on("add remove change:read unread status", (what) => reports.push(what.id ?? what));
    inbox.show([item(2), item(1)], 7);
    assert.deepEqual(reports.splice(0), ["news/2", "news/1", 7, "current"]);
    inbox.show([item(3), item(2, { read: true })], 6);
    assert.deepEqual(reports.splice(0), ["news/2", "news/1", "news/3", 6]);
    assert.deepEqual(list.map((each) => [each.id, each.get("read")]), [["news/3", false], ["news/2", true]]);
    assert.deepEqual([list.unread, list.status], [6, "current"]);
  });

  it("has what its inbox shows already, keeps models, and stops following on unfollow", () => {
    const inbox = played();
    inbox.show([item(1)], 1);
    const list = new NotificationList([], { inbox });
    const [model] = list.models;
    inbox.show([item(1, { read: true })], 0);
    assert.deepEqual([list.at(0) === model, model.get("read")], [true, true]);
    list.unfollow();
    inbox.show([], 0);
    assert.deepEqual([list.length, inbox.listeners.size, inbox.alerted.size], [1, 0, 0]);
  });

  it("triggers alert with the items that its inbox alerts of, which are not muted", () => {
    const inbox = played();
    const alerts = [];
    new NotificationList([], { inbox }).on("alert", ({ id }) => alerts.push(id));
    for (const listener of inbox.alerted) listener(item(4));
    assert.deepEqual(alerts, ["news/4"]);
  });

  it("has items with ids that are names of every object", () => {
    const inbox = played();
    const list = new NotificationList([], { inbox });
    const items = HOSTILE.map((id, at) => item(at, { id, data: { toString: 1 } }));
    for (let times = 0; times < 2; times++) inbox.show(items, items.length);
    assert.deepEqual(list.pluck("id"), HOSTILE);
    assert.deepEqual(HOSTILE.filter((id) => list.get(id)?.id !== id), []);
  });

  it("can be extended, and has no items yet in initialize", () => {
    const inbox = played();
    inbox.show([item(1)], 1);
    const Mine = NotificationList.extend({
      initialize() {
        this.atFirst = [this.length, this.unread, this.status];
      },
    });
    const list = new Mine([], { inbox });
    assert.deepEqual([list.atFirst, list.length], [[0, 0, "loading"], 1]);
  });
});

describe("what is fetched before the subscription is acknowledged", () => {
  const FORBIDDEN = { code: "forbidden", message: "no", retry: false };
  /** @type {FakeGateway} */
  let gateway;
  let gate;
  /** The server's models: an answer shows them as of the request. */
  let book;

  const answer = (request) => request.succeed(request.book);
  const shown = (orders) => orders.pluck("id");

  const Shop = Orders.extend({
    sync(...args) {
      const made = sync(...args);
      requests.at(-1).book = structuredClone(book);
      return made;
    },
  });

  /** Connect, and be let in. */
  function letIn(more) {
    gate.open();
    return gateway.welcome(more);
  }

  /** Answer every request, also those that follow from it. */
  async function answerAll() {
    for (let next = 0; next < requests.length; next++) {
      answer(requests[next]);
      await settle();
    }
  }

  beforeEach(() => {
    gateway = new FakeGateway();
    gate = connect("http://gateway.test", { io: gateway.io, autoConnect: false, reconnectDelayMinMs: 1, reconnectDelayMaxMs: 2 });
    book = [{ id: 1 }];
  });

  afterEach(() => gate.close());

  it("is fetched again then, so that an event between the two is not missed", async () => {
    const orders = new Shop([], { gate });
    const xhr = orders.fetch();
    assert.deepEqual(xhr, {});
    answer(requests[0]);
    assert.deepEqual(shown(orders), [1]);
    book.push({ id: 2 });
    await letIn();
    await gateway.until(() => requests.length === 2);
    answer(requests[1]);
    assert.deepEqual(shown(orders), [1, 2]);
    orders.fetch();
    answer(requests[2]);
    await settle();
    assert.equal(requests.length, 3);
  });

  it("is fetched again with the same options, but for the callbacks, which belong to the first", async () => {
    const orders = new Shop([], { gate });
    const called = [];
    orders.on("reset sync error", () => called.push("event"));
    orders.fetch({ reset: true, data: { mine: 1 }, success: () => called.push("success"), error: () => called.push("error") });
    answer(requests[0]);
    await letIn();
    await gateway.until(() => requests.length === 2);
    answer(requests[1]);
    assert.deepEqual([requests[1].options.reset, requests[1].options.data], [true, { mine: 1 }]);
    assert.deepEqual(called, ["event", "success", "event", "event", "event"]);
  });

  it("is fetched again page by page, if it came so", async () => {
    const orders = new Shop([], { gate });
    const page = (number) => ({ data: { page: number }, ...(number > 1 && { remove: false }) });
    for (const number of [1, 2, 3, 2]) orders.fetch(page(number));
    await letIn();
    await answerAll();
    assert.deepEqual(requests.map(({ options }) => [options.data.page, options.remove]), [
      [1, undefined], [2, false], [3, false], [2, false], [1, undefined], [3, false], [2, false],
    ]);
  });

  it("is fetched again from its beginning, if that came with the page and the rest was added", async () => {
    const orders = new Shop(book, { gate });
    orders.fetch({ remove: false, data: { page: 2 } });
    await letIn();
    await answerAll();
    assert.deepEqual(requests.map(({ options }) => options.data?.page), [2, undefined, 2]);
  });

  it("is remembered up to a limit, and reaching it is reported", async () => {
    const orders = new Shop([], { gate });
    for (let page = 1; page <= 110; page++) {
      orders.fetch({ remove: false, data: { page } });
      answer(requests.at(-1));
    }
    assert.deepEqual(reported.map(({ message }) => message), ["headgate: more than 100 fetches with remove: false; a gap repeats no older ones"]);
    requests.length = 0;
    await letIn();
    await gateway.until(() => requests.length === 1);
    await answerAll();
    assert.equal(requests.length, 100);
    assert.equal(requests.at(-1).options.data.page, 110);
  });

  it("is not fetched again without need", async () => {
    const orders = new Shop([], { gate });
    await letIn();
    await gate.subscribed("orders.*.*");
    await settle();
    orders.fetch();
    answer(requests[0]);
    gateway.cut();
    orders.fetch();
    answer(requests[1]);
    await gateway.letIn({ resumed: true }, 2);
    assert.equal(requests.length, 2);
  });

  it("is fetched again when the subscription is granted after a refusal", async () => {
    const orders = new Shop([], { gate });
    orders.fetch();
    answer(requests[0]);
    gate.on("delivery:error", () => {});
    await letIn({ subscriptions: [{ pattern: "orders.*.*", error: FORBIDDEN }] });
    await assert.rejects(gate.subscribed("orders.*.*"), { code: "forbidden" });
    await settle();
    assert.equal(requests.length, 1);
    book.push({ id: 2 });
    const refreshed = gate.refresh("token");
    await gateway.answer("refresh");
    await refreshed;
    await gateway.answer("subscribe");
    await gateway.until(() => requests.length === 2);
    answer(requests[1]);
    assert.deepEqual(shown(orders), [1, 2]);
  });

  it("is fetched again when following begins after it", async () => {
    const orders = new Shop();
    orders.fetch({ data: { mine: 1 } });
    answer(requests[0]);
    book.push({ id: 2 });
    gate.on("orders.*.*", () => {});
    await letIn();
    await gate.subscribed("orders.*.*");
    orders.follow(gate);
    await gateway.until(() => requests.length === 2);
    answer(requests[1]);
    assert.deepEqual([shown(orders), requests[1].options.data], [[1, 2], { mine: 1 }]);
  });

  it("is fetched once when it came with the page", async () => {
    const orders = new Shop(book, { gate });
    const order = new Order({ id: 7, status: "new" }, { gate, topic: "orders" });
    new Shop([], { gate });
    new Order({ id: 8 }, { gate, topic: "orders" });
    new Shop(book, { gate, refetch: false });
    book.push({ id: 2 });
    await letIn();
    await gateway.until(() => requests.length === 2);
    requests.find(({ data }) => !Array.isArray(data)).succeed({ id: 7, status: "packed" });
    answer(requests.find(({ data }) => Array.isArray(data)));
    await settle();
    assert.deepEqual([shown(orders), order.get("status"), requests.length], [[1, 2], "packed", 2]);
  });

  it("is fetched again when a model that was saved follows", async () => {
    const order = new Order({ status: "new" }, { gate, topic: "orders" });
    await letIn();
    order.save();
    requests[0].succeed({ id: 7, version: 1 });
    assert.equal((await gateway.answer("subscribe")).pattern, "orders.7.*");
    await gateway.until(() => requests.length === 2);
    requests[1].succeed({ id: 7, version: 2, status: "packed" });
    assert.deepEqual([requests[1].method, order.get("status")], ["read", "packed"]);
    await settle();
    assert.deepEqual(Object.keys(gate.state.subscriptions), ["orders.7.*"]);
  });

  it("is not fetched again by one that follows no more", async () => {
    const orders = new Shop([], { gate });
    const order = new Order({ id: 7 }, { gate, topic: "orders" });
    const [handler, pattern] = [() => {}, "orders.#"];
    gate.on(pattern, handler);
    for (const each of [orders, order]) each.fetch();
    orders.unfollow();
    await letIn();
    order.unfollow();
    await gate.subscribed(pattern);
    for (const request of requests) request.succeed([]);
    await settle();
    assert.equal(requests.length, 2);
    orders.follow(gate);
    await gateway.answer("unsubscribe");
    await gateway.answer("subscribe");
    await gateway.until(() => requests.length === 3);
  });

  it("is fetched again when an answer from before it stopped following undoes a newer one", async () => {
    const orders = new Shop([], { gate });
    gate.on("orders.*.*", () => {});
    await letIn();
    await settle();
    orders.fetch();
    orders.unfollow();
    book.push({ id: 2 });
    orders.follow(gate);
    await gateway.until(() => requests.length === 2);
    answer(requests[1]);
    answer(requests[0]);
    assert.deepEqual(shown(orders), [1]);
    await gateway.until(() => requests.length === 3);
    answer(requests[2]);
    assert.deepEqual(shown(orders), [1, 2]);
  });

  it("is reported in the console when it cannot be fetched, and later events still come", async () => {
    const Nowhere = LiveCollection.extend({ topic: "orders" });
    const orders = new Nowhere([{ id: 1 }], { gate });
    await letIn();
    await gateway.until(() => reported.length === 1);
    assert.match(reported[0].message, /"url" property or function must be specified/);
    gateway.event("orders.2.created", { id: 2 }, 101);
    assert.deepEqual([shown(orders), reported.length], [[1, 2], 1]);
  });

  it("is fetched by the application's own fetch, too", async () => {
    const calls = [];
    const Own = Shop.extend({
      fetch(options) {
        calls.push(options);
        return LiveCollection.prototype.fetch.call(this, { ...options, data: { mine: 1 } });
      },
    });
    const orders = new Own([], { gate });
    orders.fetch();
    await letIn();
    await answerAll();
    assert.deepEqual([requests.length, calls.length], [2, 2]);
    assert.deepEqual(requests[1].options.data, { mine: 1 });
    const Alone = Shop.extend({ fetch: () => calls.push("alone") });
    new Alone([{ id: 1 }], { gate });
    await gateway.until(() => calls.length === 3);
    await settle();
    assert.equal(calls.length, 3);
  });
});
