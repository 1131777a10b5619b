/** Bad input, against a real gateway: one error with a separate code for each, and every waiting caller gets it. */
import assert from "node:assert/strict";
import { createServer } from "node:net";
import { after, afterEach, before, it } from "node:test";
import { connect, HeadgateError } from "headgate";
import { GatewayProcess, patient, until } from "./gateway-process.mjs";
import { SECRET, token } from "./tokens.mjs";

/** @type {GatewayProcess} */
let gateway;
/** @type {import("headgate").Gate[]} */
const gates = [];
const GRANTS = { subscribe: ["orders.#"], publish: ["orders.#"] };

/** @param {string} [url] @param {import("headgate").ConnectOptions} [options] */
function open(url = gateway.url, options = {}) {
  const gate = patient(connect(url, { token: token("ann", GRANTS), reconnectDelayMinMs: 20, reconnectDelayMaxMs: 100, ...options }));
  gates.push(gate.on("connection:refused", () => {}));
  return gate;
}

/** Every error is one of the product's. @param {string} code @param {Record<string, any>} parts @param {boolean} [retry] */
const error = (code, parts, retry = false) => (/** @type {any} */ fault) => {
  assert.ok(fault instanceof HeadgateError);
  const some = Object.fromEntries(Object.keys(parts).map((name) => [name, fault.parts[name]]));
  assert.deepEqual([fault.code, fault.retry, some], [code, retry, parts]);
  return true;
};

before(async () => {
  gateway = await new GatewayProcess({ HEADGATE_DEV: "0", HEADGATE_TOKEN_SECRET: SECRET, HEADGATE_TOKEN_LEEWAY_S: "0" }).start();
});

afterEach(() => {
  for (const gate of gates.splice(0)) gate.close();
});

after(() => gateway?.remove());

it("an address that is no URL is refused by the call", () => {
  assert.throws(() => connect("example.com"), error("invalid_address", { url: "example.com" }));
});

it("an address where nobody listens rejects `ready` in the time that a connection may take, and the client goes on trying", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  await new Promise((resolve) => server.close(resolve));
  const gate = open(`http://127.0.0.1:${port}`, { connectTimeoutMs: 100 });
  await assert.rejects(gate.subscribe("orders.#", () => {}).ready, error("unreachable", { url: `http://127.0.0.1:${port}/notifications` }, true));
  assert.ok(["waiting", "connecting"].includes(gate.status), gate.status);
});

it("a pattern with a bad word is refused by the call, and one that is not granted rejects `ready`", async () => {
  const gate = open();
  assert.throws(() => gate.subscribe("orders.a b", () => {}), error("invalid_pattern", { pattern: "orders.a b" }));
  assert.throws(() => gate.subscribe("orders.*x", () => {}), error("invalid_pattern", { pattern: "orders.*x" }));
  await assert.rejects(gate.subscribe("secrets.#", () => {}).ready, error("forbidden", { name: "secrets.#" }));
  assert.equal(gate.status, "live");
});

it("a payload that is too large, a bad topic and one that is not granted reject the publish, and the connection lives", async () => {
  const gate = open();
  await until(() => gate.status === "live", "the connection");
  await assert.rejects(gate.publish("orders.1", "x".repeat(65_535)), error("payload_too_large", { size: 65_537, limit: 65_536, where: "browser" }));
  await assert.rejects(gate.publish("orders..1", 1), error("invalid_topic", { topic: "orders..1" }));
  await assert.rejects(gate.publish("secrets.1", 1), error("forbidden", { name: "secrets.1" }));
  assert.equal((await gate.publish("orders.1", 1)).offset > 0, true);
});
