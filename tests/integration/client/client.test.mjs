/** The browser client, as it is published, from Node against a real gateway with a real Redis. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, afterEach, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { connect, events } from "headgate";
import { LiveCollection } from "headgate/backbone";
import { io } from "socket.io-client";
import { GatewayProcess, patient, until } from "./gateway-process.mjs";

/** @type {GatewayProcess} */
let gateway;
/** @type {import("headgate").Gate[]} */
const gates = [];

/** @param {import("../../../web/src/connect.js").ConnectOptions} [options] */
function open(options) {
  const gate = patient(connect(gateway.url, { reconnectDelayMinMs: 20, reconnectDelayMaxMs: 100, ...options }));
  gates.push(gate);
  return gate;
}

/** A gate with a connection that a test can cut from below. */
function openCuttable() {
  /** @type {any} */
  let socket;
  const gate = open({
    io: (/** @type {string} */ address, /** @type {any} */ options) => {
      socket = io(address, options);
      return socket;
    },
  });
  return { gate, cut: () => socket.io.engine.close() };
}

/** @param {import("headgate").Gate} gate */
const isUp = (gate) => until(() => gate.state.connection === "up", "the connection to be up");

before(async () => {
  gateway = await new GatewayProcess().start();
});

afterEach(() => {
  for (const gate of gates.splice(0)) gate.close();
});

after(() => gateway?.remove());

describe("against a real gateway", () => {
  it("is told the limits, and refuses what is above them", async () => {
    const gate = open();
    await isUp(gate);
    assert.equal(gate.state.limits.maxPayloadBytes, 65536);
    const fits = "x".repeat(65536 - 2);
    const { offset } = await gate.publish("size", fits);
    assert.ok(offset > 0);
    await assert.rejects(gate.publish("size", `${fits}x`), { code: "payload_too_large", parts: { size: 65537, limit: 65536, where: "browser" } });
    assert.equal(gate.state.connection, "up");
  });

  it("agrees with the gateway on the size of text beyond ASCII", async () => {
    const gate = open();
    await isUp(gate);
    for (const character of ["é", "€", "😀", "\u2028"]) {
      const bytes = new TextEncoder().encode(character).length;
      const data = character.repeat(Math.floor((65536 - 2) / bytes));
      const { offset } = await gate.publish("size.text", data);
      assert.ok(offset > 0, character);
    }
  });

  it("publishes once under one id", async () => {
    const gate = open();
    await isUp(gate);
    const id = `once-${process.pid}`;
    const first = await gate.publish("idempotent", 1, { id });
    const second = await gate.publish("idempotent", 1, { id });
    assert.equal(first.duplicate, false);
    assert.deepEqual([second.offset, second.duplicate], [first.offset, true]);
  });

  it("hears the gateway's refusal of an id", async () => {
    const gate = open();
    await isUp(gate);
    await assert.rejects(gate.publish("a", 1, { id: "no spaces" }), { code: "invalid_event", retry: false });
  });

  it("gets what other programs publish, with and without an offset", async () => {
    const gate = open();
    /** @type {any[]} */
    const got = [];
    gate.on("outside.#", (data, { topic, offset, id }) => got.push({ topic, data, logged: offset !== null, id: id !== null }));
    await isUp(gate);
    await gateway.publish("outside.logged", { from: "the command line" });
    await until(() => got.length === 1, "the logged event");
    await gateway.plainPublish("outside.plain", '{"from":"redis-cli"}');
    await until(() => got.length === 2, "the plain event");
    assert.deepEqual(got, [
      { topic: "outside.logged", data: { from: "the command line" }, logged: true, id: true },
      { topic: "outside.plain", data: { from: "redis-cli" }, logged: false, id: false },
    ]);
  });

  it("reaches topics with treacherous names", async () => {
    const gate = open();
    const names = ["constructor", "__proto__", "hasOwnProperty", "all", "toString"];
    /** @type {string[]} */
    const got = [];
    for (const name of names) gate.subscribe(name, (data) => got.push(data));
    await isUp(gate);
    for (const name of names) await gate.publish(name, name);
    await until(() => got.length === names.length, "all of them");
    assert.deepEqual(got, names);
  });

  it("subscribes to a hundred patterns one by one without being taken for a flood", async () => {
    const gate = open();
    await isUp(gate);
    for (let n = 0; n < 110; n++) gate.on(`many.${n}`, () => {});
    await until(() => Object.values(gate.state.subscriptions).every((standing) => standing === "active"), "all to be active");
    assert.equal(Object.keys(gate.state.subscriptions).length, 110);
  });

  it("hears which limit it has reached", async () => {
    const gate = open();
    /** @type {any[]} */
    const errors = [];
    gate.on("delivery:error", ({ pattern, error }) => errors.push([pattern, error.code, error.parts.name]));
    for (let n = 0; n <= 32; n++) gate.on(`wild.${n}.*`, () => {});
    await isUp(gate);
    assert.deepEqual(errors, [["wild.32.*", "limit_reached", "wildcards"]]);
  });

  it("gets what it missed while it was away, in order, once", async () => {
    const publisher = open();
    await isUp(publisher);
    const { gate, cut } = openCuttable();
    /** @type {number[]} */
    const got = [];
    /** @type {any[]} */
    const told = [];
    gate.on("away.#", (data) => got.push(data)).on("delivery:gap", (gap) => told.push(gap)).on("delivery:resumed", () => told.push("resumed"));
    await isUp(gate);
    await publisher.publish("away.1", 1);
    await until(() => got.length === 1, "the first event");
    gate.once("connection:down", () => told.push("down"));
    cut();
    await until(() => told.length > 0, "the cut to be noticed");
    // Fewer than a client may send at once.
    for (let n = 2; n <= 80; n++) await publisher.publish(`away.${n}`, n);
    await until(() => got.length >= 80, "everything");
    await publisher.publish("away.last", 81);
    await until(() => got.length >= 81, "the event after");
    assert.deepEqual(got, Array.from({ length: 81 }, (_, n) => n + 1));
    assert.deepEqual(told, ["down", "resumed"]);
  });

  it("gives a new page the past that it asks for, and its other handlers only what is new", async () => {
    const gate = open();
    /** @type {any[]} */
    const got = [];
    gate.on("past.#", (_data, { offset }) => got.push(["live", offset]));
    await isUp(gate);
    const offsets = [];
    for (let n = 0; n < 5; n++) offsets.push((await gate.publish("past.a", n)).offset);
    await until(() => got.length === 5, "the live events");
    gate.subscribe("past.*", { since: { last: 3 } }, (_data, { offset, replayed }) => got.push([replayed ? "past" : "new", offset]));
    await gate.subscribed("past.*");
    await until(() => got.length >= 8, "the past");
    offsets.push((await gate.publish("past.b", 5)).offset);
    await until(() => got.length >= 10, "the new event");
    const live = offsets.map((offset) => ["live", offset]);
    assert.deepEqual(got, [
      ...live.slice(0, 5), ...offsets.slice(2, 5).map((offset) => ["past", offset]), live[5], ["new", offsets[5]],
    ]);
  });

  it("gives the past to a subscription that is part of the first CONNECT", async () => {
    const first = open();
    await isUp(first);
    const offsets = [];
    for (let n = 0; n < 5; n++) offsets.push((await first.publish("early.a", n)).offset);
    const gate = open();
    /** @type {any[]} */
    const got = [];
    gate.subscribe("early.*", { since: { last: 3 } }, (_data, { offset }) => got.push(offset));
    await until(() => got.length >= 3, "the past");
    offsets.push((await first.publish("early.b", 5)).offset);
    await until(() => got.length >= 4, "the new event");
    assert.deepEqual(got, offsets.slice(2));
  });

  it("has a collection see what happens between the server's answer and its subscription", async () => {
    const publisher = open();
    await isUp(publisher);
    const book = [{ id: 1, version: 1 }];
    const Orders = LiveCollection.extend({
      topic: "book",
      sync(/** @type {any} */ _method, /** @type {any} */ _orders, /** @type {any} */ { success }) {
        const now = [...book];
        setImmediate(() => success(now));
      },
    });
    const gate = open({ autoConnect: false });
    const orders = new Orders([], { gate });
    orders.fetch();
    await until(() => orders.length === 1, "the first answer");
    book.push({ id: 2, version: 1 });
    await publisher.publish("book.2.created", { id: 2, version: 1 });
    gate.open();
    await until(() => orders.length === 2, "the order that was made meanwhile");
    assert.deepEqual(orders.toJSON(), book);
  });

  it("iterates", async () => {
    const gate = open();
    /** @type {any[]} */
    const got = [];
    const loop = (async () => {
      for await (const event of events(gate, "iterate.*")) {
        got.push(event.data);
        if (got.length === 3) break;
      }
    })();
    await until(() => gate.state.subscriptions["iterate.*"] === "active", "the loop to be subscribed");
    for (const n of [1, 2, 3]) await gate.publish(`iterate.${n}`, n);
    await loop;
    assert.deepEqual(got, [1, 2, 3]);
  });

  it("lets the process end once it is closed", async () => {
    const script = `
      import { connect, events } from "headgate";
      const gate = connect(${JSON.stringify(gateway.url)});
      gate.once("end.me", () => gate.close());
      gate.once("connection:up", () => gate.publish("end.me", 1).catch(() => {}));
    `;
    const child = spawn(process.execPath, ["--input-type=module", "--eval", script], {
      cwd: fileURLToPath(new URL(".", import.meta.url)), stdio: "inherit",
    });
    let code;
    child.once("exit", (ended) => {
      code = ended;
    });
    await until(() => code !== undefined, "the process to end by itself").finally(() => child.kill("SIGKILL"));
    assert.equal(code, 0);
  });
});

describe("when the gateway is killed and comes back", () => {
  it("reconnects, subscribes again, and goes on", async () => {
    const mortal = await new GatewayProcess().start();
    try {
      const gate = connect(mortal.url, { reconnectDelayMinMs: 20, reconnectDelayMaxMs: 200 });
      gates.push(gate);
      /** @type {any[]} */
      const got = [];
      gate.on("phoenix", (data) => got.push(data));
      await isUp(gate);
      await gate.publish("phoenix", 1);
      await mortal.stop("SIGKILL");
      await until(() => gate.state.connection !== "up", "the client to notice");
      await mortal.start();
      await isUp(gate);
      await gate.publish("phoenix", 2);
      await until(() => got.length === 2, "the event after the restart");
      assert.deepEqual(got, [1, 2]);
      assert.equal(gate.state.gaps, 0);
    } finally {
      await mortal.remove();
    }
  });
});
