/** Requests to functions of an application, from the client as it is published, by each way to a real gateway. */
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { after, afterEach, before, describe, it } from "node:test";
import { connect } from "headgate";
import { request } from "headgate/request";
import { GatewayProcess, patient, until } from "./gateway-process.mjs";
import { SECRET, token } from "./tokens.mjs";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const GRANTS = { subscribe: ["orders.#"], publish: ["orders.#"] };
const SETTINGS = { HEADGATE_DEV: "0", HEADGATE_TOKEN_SECRET: SECRET, HEADGATE_REQUESTS_PER_S: "1000", HEADGATE_INBOUND_PER_S: "1000", PYTHONPATH: ROOT };
/** @type {Record<string, import("headgate").ConnectOptions>} */
const WAYS = { "a WebSocket": {}, "a stream over HTTP": { transport: "stream" }, "socket.io-client": { transport: "socket.io" } };

/** @type {GatewayProcess} */
let gateway;
/** @type {import("headgate").Gate[]} */
const gates = [];

/** Open a page of this user, and wait until it is up. @param {import("headgate").ConnectOptions} [options] @param {string} [url] */
async function open(options = {}, url = gateway.url) {
  const gate = patient(connect(url, { token: token("ann", GRANTS), reconnectDelayMinMs: 20, reconnectDelayMaxMs: 100, ...options }));
  gates.push(gate);
  await until(() => gate.isUp, "the connection");
  return gate;
}

/** Note the output of the application's waiting function. @param {import("headgate").Gate} gate */
async function watch(gate) {
  /** @type {any[]} */
  const told = [];
  gate.on("orders.begun", () => told.push("begun"));
  gate.on("orders.ended", (/** @type {any} */ end) => told.push(end));
  await Promise.all(["orders.begun", "orders.ended"].map((topic) => gate.subscribed(topic)));
  return told;
}

before(async () => {
  gateway = await new GatewayProcess(SETTINGS, ["tests.support.asked_application:app"]).start();
});

afterEach(() => {
  for (const gate of gates.splice(0)) gate.close();
});

after(() => gateway?.remove());

for (const [way, options] of Object.entries(WAYS)) {
  describe(`over ${way}`, () => {
    it("is answered by the function, which knows who asks", async () => {
      const gate = await open(options);
      assert.deepEqual(await request(gate, "orders.price", { sku: "é" }), { data: { sku: "é" }, user: "ann", namespace: "notifications", app: "shop" });
    });

    for (const [name, data, more] of /** @type {[string, any, Record<string, any>][]} */ ([
      ["orders.order", 1, { code: "sold_out", message: /no more of them/, parts: { nextOn: "monday" } }],
      ["orders.fail", 1, { code: "request_failed", retry: false }],
      ["orders.none", 1, { code: "unknown_request" }],
      ["bills.price", 1, { code: "forbidden", parts: { action: "request", name: "bills.price" } }],
      ["orders.large", 70_000, { code: "payload_too_large", parts: { size: 70_002, limit: 65_536, where: "answer" } }],
    ])) {
      it(`is refused: ${name}, ${more.code}`, async () => {
        const gate = await open(options);
        await assert.rejects(request(gate, name, data), more);
        assert.ok(gate.isUp);
      });
    }

    it("takes a payload of the largest size, and brings one", async () => {
      const gate = await open(options);
      const most = "x".repeat(65_534);
      assert.equal(await request(gate, "orders.size", most), 65_534);
      assert.equal(await request(gate, "orders.large", 65_534), most);
    });

    it("ends in its time: the function is stopped, and the page is told", async () => {
      const gate = await open(options);
      const told = await watch(gate);
      await assert.rejects(request(gate, "orders.wait", 60, { timeoutMs: 300 }), { code: "timed_out", retry: false, parts: { name: "orders.wait", timeoutS: 0.3 } });
      await until(() => told.length === 2, "the end of the function");
      assert.deepEqual(told, ["begun", "stopped"]);
    });

    it("is cancelled: the function is stopped", async () => {
      const gate = await open(options);
      const told = await watch(gate);
      const control = new AbortController();
      const answer = request(gate, "orders.wait", 60, { signal: control.signal, timeoutMs: 9000 });
      const cancelled = assert.rejects(answer, { name: "AbortError" });
      await until(() => told.length === 1, "the function");
      control.abort();
      await cancelled;
      await until(() => told.length === 2, "the end of the function");
      assert.deepEqual(told, ["begun", "stopped"]);
    });

    it("holds up nothing: other requests are answered while a function waits", async () => {
      const gate = await open(options);
      const told = await watch(gate);
      const control = new AbortController();
      const slow = assert.rejects(request(gate, "orders.wait", 60, { signal: control.signal }), { name: "AbortError" });
      await until(() => told.length === 1, "the function");
      assert.equal((await request(gate, "orders.price", 1)).data, 1);
      assert.ok((await gate.publish("orders.1", 1)).offset > 0);
      control.abort();
      await slow;
    });
  });
}

it("is bounded: of a user, so many wait, and the others are refused with a time", async () => {
  const gate = await open();
  const control = new AbortController();
  const all = Array.from({ length: 20 }, () => request(gate, "orders.wait", 60, { signal: control.signal }));
  const refused = await Promise.all(all.slice(16).map((each) => each.catch((/** @type {any} */ error) => error)));
  for (const { code, retry, parts } of refused) assert.deepEqual([code, retry, parts.name, parts.limit], ["limit_reached", true, "max_requests", 16]);
  control.abort();
  for (const each of await Promise.allSettled(all.slice(0, 16))) assert.equal(/** @type {any} */ (each).reason.name, "AbortError");
});

it("reaches functions of the gateway that the page is connected to, whose events reach the pages of all", async () => {
  const second = await new GatewayProcess({ ...SETTINGS, HEADGATE_REDIS_URL: gateway.redisUrl }, ["tests.support.asked_application:app"]).start();
  try {
    const [here, there] = [await open(), await open({}, second.url)];
    const told = await watch(here);
    assert.equal(await request(there, "orders.wait", 0), "answered");
    await until(() => told.length === 2, "the events of the other gateway");
    // The page goes on at the first one; the request to the second has no answer, and is not asked again.
    const lost = assert.rejects(request(there, "orders.wait", 60), { code: "outcome_unknown", retry: false });
    await until(() => told.length === 3, "the function");
    await second.stop("SIGKILL");
    await lost;
    assert.equal((await request(await open(), "orders.price", 1)).data, 1);
    assert.deepEqual(told, ["begun", "answered", "begun"]);
  } finally {
    await second.remove();
  }
});

for (const [way, options] of Object.entries(WAYS)) {
  it(`is of unknown outcome when the gateway is killed while the function works: over ${way}`, async () => {
    const gate = await open(options);
    const told = await watch(gate);
    const lost = assert.rejects(request(gate, "orders.wait", 60), { code: "outcome_unknown", retry: false });
    await until(() => told.length === 1, "the function");
    await gateway.stop("SIGKILL");
    await lost;
    await gateway.start();
    await until(() => gate.isUp, "the connection to be back");
    assert.equal((await request(gate, "orders.price", 1)).data, 1);
    assert.deepEqual(told, ["begun"]);
  });
}
