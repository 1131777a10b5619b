/** `gate.off`: it removes what the application has bound, and nothing of the parts of this package, which end by themselves. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "node:test";
import { connect, events, load } from "#headgate";
import { createInbox } from "#headgate/inbox";
import { createOutbox } from "#headgate/offline";
import { presence } from "#headgate/presence";
import { collectionStore, eventsStore, presenceStore, statusStore } from "#headgate/store";
import { FakeGateway, settle } from "./fake-gateway.js";

/** @type {any} */
let gateway;
/** @type {any} */
let gate;
beforeEach(async () => {
  gateway = new FakeGateway();
  gate = connect("http://gateway.test", { io: gateway.io, reconnectDelayMinMs: 1, reconnectDelayMaxMs: 2 });
  await gateway.welcome();
});
afterEach(() => gate.close());

const kept = (/** @type {any} */ store) => ({ see: () => JSON.stringify(store.getSnapshot()), end: store.subscribe(() => {}) });

/** Each part: made of the gate, what it shows, and its own end. @type {Record<string, () => { see: () => string, end: () => void }>} */
const PARTS = {
  load() {
    /** @type {any[]} */
    const had = [];
    const list = load(gate, "a.#", () => [], { reset() {}, apply: (data) => had.push(data) });
    return { see: () => JSON.stringify([had, list.status]), end: list.close };
  },
  events() {
    const loop = events(gate, "a.#");
    /** @type {any[]} */
    const had = [];
    void (async () => {
      for await (const { data } of loop) had.push(data);
    })();
    return { see: () => JSON.stringify(had), end: () => void loop.return?.() };
  },
  eventsStore: () => kept(eventsStore(gate, "a.#")),
  collectionStore: () => kept(collectionStore(gate, "a")),
  statusStore: () => kept(statusStore(gate)),
  presenceStore: () => kept(presenceStore(gate, "a.b")),
  inbox: () => kept(createInbox(gate)),
  presence() {
    const room = presence(gate, "a.b");
    return { see: () => room.status, end: () => room.close() };
  },
  outbox() {
    const outbox = createOutbox(gate);
    void outbox.publish("a.b", 1).catch(() => {});
    return { see: () => String(gateway.requests.filter((/** @type {any} */ { name }) => name === "publish").length), end: () => outbox.close() };
  },
};

/** What a part shows before and after the connection breaks and comes back with an event, and whether anything is left of it at its end. @param {() => any} make @param {(() => void)[]} offs */
async function life(make, offs) {
  const { see, end } = make();
  const seen = [];
  for (let turn = 0; turn < 3; turn++) await settle();
  for (const off of offs) off();
  gateway.event("a.1.created", { n: 1 }, 101);
  await settle();
  seen.push(see());
  gateway.cut();
  await gateway.until(() => gateway.connects.length === 2, "the second CONNECT");
  await settle();
  seen.push(see());
  await gateway.welcome({}, 2);
  gateway.event("a.1.updated", { n: 2 }, 102);
  for (let turn = 0; turn < 3; turn++) await settle();
  seen.push(see());
  end();
  for (let turn = 0; turn < 3; turn++) await settle();
  return [seen, Object.keys(gate.state.subscriptions), ["status:change", "delivery:gap", "connection:up"].filter((name) => gate._heard(name))];
}

describe("gate.off", () => {
  for (const [name, make] of Object.entries(PARTS)) {
    it(`leaves to its own end: ${name}`, async () => {
      const expected = await life(make, []);
      gate.close();
      gateway = new FakeGateway();
      gate = connect("http://gateway.test", { io: gateway.io, reconnectDelayMinMs: 1, reconnectDelayMaxMs: 2 });
      await gateway.welcome();
      const names = ["a.#", "a.*.*", "users.me.inbox.#", "status:change", "delivery:gap", "connection:up", "connection:down", "subscription:a.#", "presence:notice"];
      assert.deepEqual(await life(make, [() => gate.off(), () => gate.off(names.join(" "))]), expected);
      assert.deepEqual(expected.slice(1), [[], []]);
    });
  }

  it("removes what was subscribed with more arguments than there are", () => {
    gate.subscribe("a", {}, () => assert.fail("called"), true);
    gate.off();
    gate.trigger("a");
    assert.deepEqual(gate.state.subscriptions, {});
  });

  it("removes all that the application has bound, however it has", () => {
    /** @type {string[]} */
    const called = [];
    const bind = (/** @type {string} */ name) => {
      gate.on(name, () => called.push("on"));
      gate.once(name, () => called.push("once"));
      gate.listenTo(gate, name, () => called.push("listenTo"));
      if (!name.includes(":")) gate.subscribe(name, () => called.push("subscribe"));
    };
    for (const off of [() => gate.off(), () => gate.off("a my:own")]) {
      bind("a");
      bind("my:own");
      off();
      gate.trigger("a").trigger("my:own");
    }
    assert.deepEqual([called, Object.keys(gate.state.subscriptions)], [[], []]);
  });
});
