/** A closed gate: all that is made of it then is closed too, waits for nothing, and leaves nothing. */
import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { beforeEach, describe, it } from "node:test";
import { connect, events, load } from "#headgate";
import { history } from "#headgate/history";
import { createInbox } from "#headgate/inbox";
import { createOutbox } from "#headgate/offline";
import { presence } from "#headgate/presence";
import { request } from "#headgate/request";
import { collectionStore, eventsStore, presenceStore, statusStore } from "#headgate/store";
import { FakeGateway, settle } from "./fake-gateway.js";

/** @type {any} */
let gate;
beforeEach(() => {
  gate = connect("http://gateway.test", { io: new FakeGateway().io });
  gate.close();
});

/** @type {Record<string, () => Promise<unknown>>} */
const REQUESTS = {
  publish: () => gate.publish("a.b", 1),
  seen: () => gate.seen(["x"]),
  replay: () => gate.replay("a.#", { from: 1, to: 2 }),
  history: () => history(gate, "a.#"),
  request: () => request(gate, "a.b", 1),
  "outbox.publish": () => createOutbox(gate).publish("a.b", 1),
  "outbox.discard": () => createOutbox(gate).discard(),
  "inbox.markRead": () => createInbox(gate).markRead("x"),
  "store.publish": () => collectionStore(gate, "a").publish("a.b.c", 1),
};

/** @type {Record<string, [make: () => any, status: string]>} */
const STORES = {
  status: [() => statusStore(gate), "closed"],
  presence: [() => presenceStore(gate, "a.b"), "closed"],
  events: [() => eventsStore(gate, "a.#"), "idle"],
  collection: [() => collectionStore(gate, "a", { load: () => assert.fail("loaded") }), "behind"],
  inbox: [() => createInbox(gate), "behind"],
};

describe("a closed gate", () => {
  for (const [name, ask] of Object.entries(REQUESTS)) {
    it(`refuses at once: ${name}`, () => assert.rejects(ask(), { name: "HeadgateError", code: "closed" }));
  }

  for (const [name, [make, status]] of Object.entries(STORES)) {
    it(`is shown by a store: ${name}`, async () => {
      const store = make();
      const leave = store.subscribe(() => {});
      for (let turn = 0; turn < 3; turn++) await settle();
      const snapshot = store.getSnapshot();
      assert.equal(snapshot.status ?? snapshot, status);
      leave();
    });
  }

  it("has loads, rooms and loops that are over", async () => {
    const list = load(gate, "a.#", () => assert.fail("fetched"), { reset() {}, apply() {} });
    const room = presence(gate, "a.b");
    assert.deepEqual([list.status, room.status], ["closed", "closed"]);
    list.reload();
    room.update("here");
    await settle();
    assert.equal(room.getSnapshot().status, "closed");
    assert.deepEqual([gate._loads.size, gate._rooms.size], [0, 0]);
    room.close();
    const { signal } = new AbortController();
    const subscription = gate.subscribe("a.#", { signal }, () => {});
    assert.deepEqual([subscription.status, getEventListeners(signal, "abort")], ["idle", []]);
    await assert.rejects(subscription.ready, { code: "disconnected" });
    assert.equal((await events(gate, "a.#").next()).done, true);
  });

  it("has no subscription that is more than idle, also when it was connected", async () => {
    const gateway = new FakeGateway();
    const other = connect("http://gateway.test", { io: gateway.io });
    const states = [];
    other.on("a.b", () => {});
    const subscription = other.subscribe("users.me.#", () => {});
    other.on("state:change", ({ subscriptions }) => states.push(subscriptions));
    await gateway.welcome({ own: "users.ann." });
    other.close();
    other.close();
    subscription.close();
    assert.equal(subscription.status, "idle");
    for (const each of [states.at(-1), other.state.subscriptions]) assert.deepEqual([...new Set(Object.values(each))], ["idle"]);
  });
});
