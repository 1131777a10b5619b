/** One contract for every way to the gateway: the client's own WebSocket, socket.io-client by each of its transports, the way around. */
import assert from "node:assert/strict";
import { createConnection, createServer } from "node:net";
import { after, afterEach, before, describe, it } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { connect } from "headgate";
import { io } from "socket.io-client";
import { WebSocket } from "ws";
import { GatewayProcess, patient, until } from "./gateway-process.mjs";

/** @typedef {import("../../../web/src/connect.js").ConnectOptions} Options */

/** A proxy that takes no WebSockets, where each ends without having been opened. */
class Blocked {
  constructor() {
    setImmediate(() => /** @type {any} */ (this).onclose({ code: 1006, reason: "" }));
  }

  close() {}
}

/** @type {Record<string, Options>} */
const WAYS = {
  "a WebSocket of its own": { WebSocket },
  "socket.io-client, by WebSocket": { transport: "socket.io" },
  "socket.io-client, by long-polling": { transports: ["polling"] },
  "socket.io-client, upgraded": { transports: ["polling", "websocket"] },
  "an application's own socket.io-client": { io },
  "a stream over HTTP, where a WebSocket does not get through": { WebSocket: Blocked },
};

/** @type {GatewayProcess} */
let gateway;
/** A way to the gateway that can be cut. @type {{ url: string, cut: () => void, close: () => void }} */
let line;
/** @type {import("headgate").Gate[]} */
const gates = [];

/** @param {Options} options */
function open(options) {
  const gate = patient(connect(line.url, { reconnectDelayMinMs: 20, reconnectDelayMaxMs: 100, ...options }));
  gates.push(gate);
  return gate;
}

/**
 * Wait until pages report this of an event, as how many have handled it, and how many have passed it without a handler. A busy page has no
 * answer in time; a session with a cut line may be there for a while, and has none.
 * @param {number} offset @param {number} handled @param {number} unhandled
 */
async function told(offset, handled, unhandled = 0) {
  const end = performance.now() + 30_000;
  for (let found; !isDeepStrictEqual(found, [handled, unhandled]); ) {
    assert.ok(performance.now() < end, `${found}`);
    const answer = await fetch(`${gateway.url}/api/v1/events/${offset}/trace`);
    const { browsers } = /** @type {any} */ (await answer.json());
    found = browsers && [browsers.handled, browsers.unhandled];
  }
}

/** @param {import("headgate").Gate} gate */
const isUp = (gate) => until(() => gate.state.connection === "up", "the connection to be up");

before(async () => {
  gateway = await new GatewayProcess().start();
  line = await openLine(Number(new URL(gateway.url).port));
});

afterEach(() => {
  for (const gate of gates.splice(0)) gate.close();
});

after(async () => {
  line?.close();
  await gateway?.remove();
});

for (const [way, options] of Object.entries(WAYS)) {
  describe(`over ${way}`, () => {
    it("subscribes, publishes, and gets every event once, in order", async () => {
      const gate = open(options);
      /** @type {any[]} */
      const got = [];
      gate.on("order.*.shipped", (data, event) => got.push([data.n, event.offset, event.pattern]));
      await isUp(gate);
      await gate.subscribed("order.*.shipped");
      const receipts = [];
      for (let n = 0; n < 20; n++) receipts.push(await gate.publish(`order.${n}.shipped`, { n, text: "é€😀" }));
      await until(() => got.length >= 20, "20 events");
      assert.deepEqual(got, receipts.map(({ offset }, n) => [n, offset, "order.*.shipped"]));
    });

    it("gets nothing after the last handler has left", async () => {
      const gate = open(options);
      /** @type {string[]} */
      const got = [];
      const note = (/** @type {any} */ _data, /** @type {any} */ { topic }) => got.push(topic);
      gate.on("leave.a", note).on("leave.b", note);
      await isUp(gate);
      gate.off("leave.a", note);
      await until(() => !("leave.a" in gate.state.subscriptions), "the pattern to be gone");
      await gate.publish("leave.a", 1);
      await gate.publish("leave.b", 2);
      await until(() => got.length > 0, "the event of the other topic");
      assert.deepEqual(got, ["leave.b"]);
    });

    it("subscribes while connected", async () => {
      const gate = open(options);
      await isUp(gate);
      const got = new Promise((resolve) => gate.once("late.#", resolve));
      await gate.subscribed("late.#");
      await gate.publish("late.one", "hello");
      assert.equal(await got, "hello");
    });

    it("brings the largest payload both ways, and hears of the gateway's refusals", async () => {
      const gate = open(options);
      const got = new Promise((resolve) => gate.once("large", resolve));
      await isUp(gate);
      const data = "x".repeat(gate.state.limits.maxPayloadBytes - 2);
      await gate.publish("large", data);
      assert.equal(await got, data);
      await assert.rejects(gate.publish("a", 1, { id: "no spaces" }), { code: "invalid_event", retry: false });
      assert.equal(gate.state.connection, "up");
    });

    it("tells a trace which events its handlers have had, also after it has come back", async () => {
      if (options.WebSocket === Blocked) return; // A page that reads a stream is not asked.
      const gate = open(options);
      const got = new Promise((resolve) => gate.once("traced.one", resolve));
      const other = () => {};
      gate.on("traced.#", other, null, {});
      await gate.subscribed("traced.#");
      const [one, two] = [await gate.publish("traced.one", 1), await gate.publish("traced.two", 2)];
      await got;
      await until(() => gate.state.offset >= two.offset, "the second event");
      await told(one.offset, 1);
      if (options === WAYS["a WebSocket of its own"]) {
        // A page's memory is the page's, not the connection's. (A poll cut between two requests notifies no one.)
        const down = new Promise((resolve) => gate.once("connection:down", resolve));
        line.cut();
        await down;
        await isUp(gate);
        await told(one.offset, 1);
      }
      // It has passed the place of this one, without a handler.
      gate.off("traced.#", other);
      gate.on("silent.#", other);
      await gate.subscribed("silent.#");
      gate.off("silent.#", other);
      await until(() => !("silent.#" in gate.state.subscriptions), "the pattern to be gone");
      const silent = await gate.publish("silent.one", 1);
      gate.on("silent.*", other);
      await gate.subscribed("silent.*");
      await gate.publish("silent.two", 2);
      await until(() => gate.state.offset > silent.offset, "the event behind it");
      await told(silent.offset, 0, 1);
      // A closed page says nothing.
      gate.close();
      await told(one.offset, 0);
    });

    it("is refused by a namespace that is not served, and stays away", async () => {
      const gate = open({ ...options, namespace: "/nowhere" });
      const refused = await new Promise((resolve) => gate.on("connection:refused", resolve));
      assert.deepEqual([refused.code, refused.retry], ["unknown_namespace", false]);
      assert.equal(gate.state.connection, "refused");
    });

    it("asks for a token at each connect, and gets what it missed when it comes back", async () => {
      let tokens = 0;
      const gate = open({ ...options, token: async () => void tokens++ });
      const publisher = patient(connect(gateway.url, { transport: "websocket", WebSocket }));
      gates.push(publisher);
      /** @type {number[]} */
      const got = [];
      gate.on("missed.#", (data) => got.push(data));
      await isUp(gate);
      await isUp(publisher);
      await publisher.publish("missed.1", 1);
      await until(() => got.length === 1, "the first event");
      const asked = tokens;
      let isDown = false;
      gate.once("connection:down", () => (isDown = true));
      // Its answer may have come before the cut, and a cut between two polls notifies no one, so the next one is cut.
      const request = gate.publish("other", 1).then(() => "answered", ({ code }) => code);
      await until(() => {
        if (!isDown) line.cut();
        return isDown;
      }, "the connection to be down");
      const outcome = await request;
      assert.ok(["answered", "outcome_unknown"].includes(outcome), outcome);
      for (let n = 2; n <= 20; n++) await publisher.publish(`missed.${n}`, n);
      await until(() => got.length >= 20, "everything");
      assert.deepEqual(got, Array.from({ length: 20 }, (_, n) => n + 1));
      assert.equal(tokens, asked + 1);
    });
  });
}

/** Begin to pass on connections to a port of this machine. @param {number} port */
async function openLine(port) {
  /** @type {Set<import("node:net").Socket>} */
  const open = new Set();
  const server = createServer((near) => {
    const far = createConnection(port, "127.0.0.1");
    for (const [one, other] of [[near, far], [far, near]]) {
      open.add(one);
      one.pipe(other);
      one.on("error", () => {});
      one.on("close", () => {
        open.delete(one);
        other.destroy();
      });
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(undefined)));
  const cut = () => open.forEach((socket) => void socket.destroy());
  const { port: own } = /** @type {import("node:net").AddressInfo} */ (server.address());
  const close = () => {
    cut();
    server.close();
  };
  return { url: `http://127.0.0.1:${own}`, cut, close };
}
