/** The lineage of the log, as a page meets it. Another epoch renames the position, a lost end moves it back and is reported. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it, mock } from "node:test";
import { connect } from "#headgate";
import { LiveCollection, LiveModel } from "#headgate/backbone";
import { FakeGateway } from "./fake-gateway.js";

const REPLAYED = { replayed: true };
const OVERFLOW = { patterns: ["a"], bytes: 9, reason: "overflow", recoverable: true };

/** @type {FakeGateway} */
let gateway;
let gate;
/** The events of the application, in order: offsets of events, gaps as "reason from-to". */
let seen;
let resyncs;

const record = (_data, { offset }) => seen.push(offset);

/** The log continues after `end` in another epoch, and the client is notified that it saw more. */
const rolledBack = (end, to, epoch) =>
  gateway.emit("gap", { patterns: ["a"], from: end + 1, to, count: to - end, bytes: 0, reason: "rolled_back", recoverable: false, epoch });

/** A page of the log at these offsets. */
const page = (offsets, next = null, epoch = "e1") => ({
  ok: true, events: offsets.map((offset) => ["a", null, { id: `i${offset}`, time: 1, offset, ...REPLAYED }]), next, epoch,
});

const position = () => [gate.state.epoch, gate.state.offset];

/** Connect for the first time. */
async function begin() {
  gate.open();
  await gateway.welcome();
}

/** Break the connection, and return the position from which the next one resumes. */
async function resumed() {
  const before = gateway.connects.length;
  gateway.cut();
  await gateway.until(() => gateway.connects.length > before, "another CONNECT");
  return Object.values(gateway.connects.at(-1).resume);
}

beforeEach(() => {
  mock.method(console, "error", () => {});
  gateway = new FakeGateway();
  seen = [];
  resyncs = [];
  gate = connect("http://gateway.test", { io: gateway.io, reconnectDelayMinMs: 1, reconnectDelayMaxMs: 2, autoConnect: false, resync: (gap) => resyncs.push(gap) });
  gate.on("delivery:gap", ({ reason, from, to }) => seen.push(`${reason} ${from}-${to}`));
});

afterEach(() => {
  gate.close();
  mock.restoreAll();
});

describe("a log that continues in another epoch", () => {
  beforeEach(async () => {
    gate.on("a", record);
    await begin();
  });

  it("is resumed in by a gateway that does not say from where", async () => {
    gateway.event("a", null, 105);
    await resumed();
    await gateway.welcome({ offset: 107, from: undefined }, 2);
    gateway.event("a", null, 106, REPLAYED);
    assert.deepEqual([seen, position()], [[105, 106], ["e1", 106]]);
  });
});

describe("a log that has lost its end", () => {
  const ROLLED_BACK = "rolled_back 104-106";

  beforeEach(async () => {
    gate.on("a", record);
    await begin();
    for (const offset of [103, 106]) gateway.event("a", null, offset);
    seen = [];
  });

  it("is reported, and what comes above its end is new, although these offsets were seen", async () => {
    const reported = [];
    gate.on("delivery:gap", (gap) => reported.push(gap));
    rolledBack(103, 106, "e2");
    assert.deepEqual(position(), ["e2", 103]);
    for (const offset of [103, 104, 106]) gateway.event("a", null, offset);
    assert.deepEqual([seen, position()], [[ROLLED_BACK, 104, 106], ["e2", 106]]);
    assert.deepEqual(reported, resyncs);
    const { reason, epoch, lost, repairing } = resyncs[0];
    assert.deepEqual([reason, epoch, lost, repairing, gate.state.missed], ["rolled_back", "e2", true, false, 0]);
    assert.deepEqual(await resumed(), ["e2", 106]);
  });
});

it("a past by an offset is asked for again with the epoch of that time", async () => {
  const asked = async () => (await gateway.answer("subscribe")).since;
  gate.on("live", record);
  await begin();
  gate.subscribe("a", { since: { offset: 90 } }, record);
  assert.deepEqual(await asked(), { offset: 90 });
  await resumed();
  await gateway.welcome({ epoch: "e2", from: { epoch: "e2", offset: 100 } }, 2);
  assert.deepEqual(await asked(), { epoch: "e1", offset: 90 });
});

describe("a repair, while the log loses its end,", () => {
  beforeEach(async () => {
    gate.on("a", record, null, { overflow: "drop" });
    await begin();
  });

  it("by hand asks again for the page that was under way, in the epoch that it meant", async () => {
    const replaying = gate.replay("a", { from: 98, to: 100 });
    await gateway.until(() => gateway.requests.length === 1, "a page");
    rolledBack(98, 100, "e2");
    for (const answer of [page([98, 99, 100]), page([98], null, "e2")]) {
      assert.deepEqual(await gateway.answer("replay", answer), { pattern: "a", from: 98, to: 100, epoch: "e1" });
    }
    assert.equal(await replaying, 1);
    assert.deepEqual(seen, ["rolled_back 99-100", 98]);
  });

  it("by hand may be of an epoch that an earlier page knew", async () => {
    void gate.replay("a", { from: 98, to: 100, epoch: "e0" }).catch(() => {});
    assert.equal((await gateway.answer("replay", page([98]))).epoch, "e0");
  });

  it("shows nothing of a lost log once the loss was reported", async () => {
    const replaying = gate.replay("a", { from: 98, to: 100 });
    await gateway.until(() => gateway.requests.length === 1, "a page");
    gateway.emit("gap", { ...OVERFLOW, from: null, to: null, count: null, reason: "log_lost", recoverable: false });
    await gateway.answer("replay", page([98, 99, 100]));
    gateway.emit("cursor", { epoch: "f1", offset: 0 });
    await gateway.answer("replay", page([], null, "f1"));
    assert.equal(await replaying, 0);
    assert.deepEqual(seen, ["log_lost null-null"]);
  });
});

describe("a model that follows, when the log has lost its end,", () => {
  /** @type {{ options: any, succeed: (answer: any) => void, fail: () => void }[]} */
  let requests;
  const sync = (_method, _model, options) => {
    requests.push({ options, succeed: (answer) => options.success(answer), fail: () => options.error({ status: 500 }) });
    return {};
  };
  const Order = LiveModel.extend({ sync, urlRoot: "/orders" });
  const Orders = LiveCollection.extend({ sync, model: Order, url: "/orders", topic: "orders" });
  const AT_ONCE = { resyncSpreadMs: 0 };
  const versions = (orders) => orders.map(({ id, attributes }) => [id, attributes.version]);
  const answer = async (nth, state) => {
    await gateway.until(() => requests.length === nth, `fetch ${nth}`);
    requests[nth - 1].succeed(state);
  };
  const lose = () => gateway.emit("gap", { patterns: [], from: 101, to: 110, count: 10, bytes: 0, reason: "rolled_back", recoverable: false, epoch: "e2" });

  beforeEach(() => {
    requests = [];
  });

  it("is fetched again, and takes a version below the one that an event had brought", async () => {
    const order = new Order({ id: 7, version: 3 }, { gate, topic: "orders", ...AT_ONCE });
    await begin();
    await answer(1, { id: 7, version: 3 });
    gateway.event("orders.7.updated", { version: 8, status: "shipped" }, 105);
    lose();
    await answer(2, { id: 7, version: 4, status: "packed" });
    assert.deepEqual(order.attributes, { id: 7, version: 4, status: "packed" });
    // From then on versions count again.
    order.fetch();
    requests[2].succeed({ id: 7, version: 3, status: "old" });
    gateway.event("orders.7.updated", { version: 5, status: "shipped" }, 101);
    assert.deepEqual(order.attributes, { id: 7, version: 5, status: "shipped" });
  });

  it("takes no lower version from a fetch that began before, and waits for the one that follows", async () => {
    const order = new Order({ id: 7, version: 3 }, { gate, topic: "orders", ...AT_ONCE });
    await begin();
    gateway.event("orders.7.updated", { version: 8 }, 105);
    await gateway.until(() => requests.length === 1, "the fetch after the acknowledgement");
    lose();
    requests[0].succeed({ id: 7, version: 2 });
    assert.equal(order.get("version"), 8);
    await answer(2, { id: 7, version: 4 });
    assert.equal(order.get("version"), 4);
  });

  it("waits for the next fetch when that one fails, or the log loses its end once more", async () => {
    const order = new Order({ id: 7, version: 3 }, { gate, topic: "orders", ...AT_ONCE });
    await begin();
    await answer(1, { id: 7, version: 3 });
    gateway.event("orders.7.updated", { version: 8 }, 105);
    lose();
    await gateway.until(() => requests.length === 2, "the fetch after the loss");
    requests[1].fail();
    order.fetch();
    lose();
    requests[2].succeed({ id: 7, version: 6 });
    assert.equal(order.get("version"), 6);
    await answer(4, { id: 7, version: 4 });
    assert.equal(order.get("version"), 4);
  });

  it("in a collection too, on each page that was fetched", async () => {
    const orders = new Orders([], { gate, ...AT_ONCE });
    await begin();
    await gate.subscribed("orders.*.*");
    orders.fetch();
    requests[0].succeed([{ id: 1, version: 1 }]);
    orders.fetch({ remove: false, data: { page: 2 } });
    requests[1].succeed([{ id: 2, version: 1 }]);
    for (const id of [1, 2, 3]) gateway.event(`orders.${id}.created`, { id, version: 8 }, 104 + id);
    lose();
    await answer(3, [{ id: 1, version: 2 }]);
    await answer(4, [{ id: 2, version: 3 }]);
    assert.deepEqual(versions(orders), [[1, 2], [2, 3]]);
  });

  it("keeps what an event has brought since, though the answer is older", async () => {
    const order = new Order({ id: 7, version: 3 }, { gate, topic: "orders", ...AT_ONCE });
    await begin();
    await answer(1, { id: 7, version: 3 });
    lose();
    gateway.event("orders.7.updated", { version: 5, status: "sent" }, 101);
    await answer(2, { id: 7, version: 4, status: "packed" });
    assert.deepEqual(order.attributes, { id: 7, version: 5, status: "sent" });
    assert.equal(requests.length, 2);
  });

  it("also when the application fetches by itself", async () => {
    const orders = new Orders([{ id: 1, version: 1 }], { gate, refetch: false });
    await begin();
    await gate.subscribed("orders.*.*");
    gateway.event("orders.1.updated", { version: 8 }, 105);
    lose();
    orders.fetch();
    requests[0].succeed([{ id: 1, version: 2 }]);
    assert.deepEqual(versions(orders), [[1, 2]]);
  });
});
