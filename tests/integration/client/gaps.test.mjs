/** Gaps and their repair, with a real gateway and a client that really does not read for a while. */
import assert from "node:assert/strict";
import { after, afterEach, before, it } from "node:test";
import { connect } from "headgate";
import { io } from "socket.io-client";
import { GatewayProcess, patient, until } from "./gateway-process.mjs";

const EVENTS = 80;
const SIZE_BYTES = 60_000;

/** @type {GatewayProcess} */
let gateway;
/** @type {import("headgate").Gate[]} */
const gates = [];

before(async () => {
  gateway = await new GatewayProcess({ HEADGATE_QUEUE_FRAMES: "16" }).start();
});

afterEach(() => {
  for (const gate of gates.splice(0)) gate.close();
});

after(() => gateway?.remove());

/** A gate with a socket that a test can stop reading from, on the machine's own level. */
function open(options = {}) {
  /** @type {any} */
  let socket;
  const made = (/** @type {string} */ address, /** @type {any} */ more) => {
    socket = io(address, more);
    return socket;
  };
  const gate = patient(connect(gateway.url, { transports: ["websocket"], io: made, ...options }));
  gates.push(gate);
  return { gate, tcp: () => socket.io.engine.transport.ws._socket };
}

/** Have the client miss something. A publisher fills more than the gateway's queue while it does not read. @param {string} topic */
async function miss(topic, /** @type {() => any} */ tcp) {
  const { gate: publisher } = open();
  let dealtWith = false;
  publisher.on("miss.end", () => {
    dealtWith = true;
  });
  await until(() => publisher.state.connection === "up", "the publisher to be up");
  tcp().pause();
  for (let n = 1; n <= EVENTS; n++) await publisher.publish(`${topic}.${n}`, [n, "x".repeat(SIZE_BYTES)]);
  // Receipts come ahead of events, so to read on while the gateway is still at it would be to overflow again, or not at all.
  await publisher.publish("miss.end", null);
  await until(() => dealtWith, "the gateway to have dealt with them all");
  tcp().resume();
  await publisher.publish(`${topic}.last`, [EVENTS + 1, ""]);
}

it("repairs what a full queue left out, each event once", async () => {
  const { gate, tcp } = open();
  /** @type {number[]} */
  const live = [];
  /** @type {number[]} */
  const replayed = [];
  /** @type {any[]} */
  const told = [];
  gate.on("drop.#", ([n], event) => (event.replayed ? replayed : live).push(n), null, { overflow: "drop" });
  gate.on("delivery:gap", ({ count, repairing, lost }) => told.push({ count, repairing, lost }));
  gate.on("delivery:resumed", ({ repaired }) => told.push({ repaired: repaired.count }));
  await until(() => gate.state.connection === "up", "to be up");
  await miss("drop", tcp);
  await until(() => live.length + replayed.length > EVENTS, "everything");
  await until(() => told.length >= 2, "to be told");
  assert.ok(replayed.length > 0);
  assert.deepEqual(told, [{ count: replayed.length, repairing: true, lost: false }, { repaired: replayed.length }]);
  assert.deepEqual([...live, ...replayed].sort((a, b) => a - b), Array.from({ length: EVENTS + 1 }, (_, n) => n + 1));
  assert.equal(gate.state.missed, 0);
});

it("catches up by itself, in order and without a gap, under the default policy", async () => {
  const { gate, tcp } = open();
  /** @type {number[]} */
  const got = [];
  /** @type {string[]} */
  const states = [];
  gate.on("catch.#", ([n]) => got.push(n)).on("delivery:backpressure", ({ state }) => states.push(state));
  await until(() => gate.state.connection === "up", "to be up");
  await miss("catch", tcp);
  await until(() => got.length > EVENTS, "everything");
  assert.deepEqual(got, Array.from({ length: EVENTS + 1 }, (_, n) => n + 1));
  assert.ok(states.includes("on"));
  assert.equal(gate.state.gaps, 0);
});
