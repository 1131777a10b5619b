/** Requests to functions of the application: answers, refusals, sent requests without an answer, cancellation. */
import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { describe, it } from "node:test";
import { request } from "#headgate/request";
import { begin } from "./begin.js";
import { settle } from "./fake-gateway.js";

/** @type {any} */
let gate;

async function welcomed(welcome = {}) {
  const made = begin();
  gate = made.gate;
  await made.gateway.welcome(welcome);
  return made.gateway;
}

/** Make a request, and return its promise with the sent message. */
async function asked(gateway, ...more) {
  const answer = request(gate, "orders.price", { sku: "a7" }, ...more);
  answer.catch(() => {});
  await gateway.until(() => gateway.requests.length, "a request");
  return { answer, sent: gateway.requests.shift() };
}

describe("request", () => {
  for (const data of [{ cents: 995, snake_case: { is_kept: true } }, null, 0]) {
    it(`resolves with the answer of the function: ${JSON.stringify(data)}`, async () => {
      const gateway = await welcomed();
      const { answer, sent } = await asked(gateway, { timeoutMs: 5000 });
      const { id, ...body } = sent.body;
      assert.deepEqual([sent.name, typeof id, body], ["request", "string", { name: "orders.price", data: { sku: "a7" }, timeout_ms: 5000 }]);
      sent.acknowledge(null, { ok: true, data });
      assert.deepEqual(await answer, data);
    });
  }

  it("is rejected with the refusal of the function, its own code and parts", async () => {
    const gateway = await welcomed();
    const { answer, sent } = await asked(gateway);
    sent.acknowledge(null, { ok: false, error: { code: "sold_out", message: "no more of them", retry: false, next_at: "monday" } });
    await assert.rejects(answer, { name: "HeadgateError", code: "sold_out", message: "no more of them", retry: false, parts: { nextAt: "monday" } });
  });

  it("is of unknown outcome where it was sent and its answer is lost, and is not sent again", async () => {
    const gateway = await welcomed();
    const { answer, sent } = await asked(gateway);
    gateway.requests.push(sent);
    gateway.cut();
    await assert.rejects(answer, { code: "outcome_unknown", retry: false, parts: { id: sent.body.id, name: "orders.price", reason: "disconnected" } });
    gate.open();
    await gateway.letIn({}, 2);
    assert.deepEqual(gateway.requests, []);
  });

  it("is of unknown outcome where no answer comes in time", async () => {
    const gateway = await welcomed();
    const { answer, sent } = await asked(gateway);
    sent.acknowledge(Error("operation has timed out"));
    await assert.rejects(answer, { code: "outcome_unknown", parts: { id: sent.body.id, name: "orders.price", reason: "timeout" } });
  });

  it("was not sent without a connection, and may be tried again", async () => {
    const gateway = await welcomed();
    gateway.cut();
    await assert.rejects(request(gate, "orders.price", 1), { code: "disconnected", retry: true });
  });

  it("is cancelled by its signal: rejected with the signal's reason at once, and the gateway is notified", async () => {
    const gateway = await welcomed();
    const control = new AbortController();
    const { answer, sent } = await asked(gateway, { signal: control.signal });
    control.abort(Error("another page"));
    await assert.rejects(answer, { message: "another page" });
    await gateway.until(() => gateway.requests.length, "the cancellation");
    assert.deepEqual([gateway.requests[0].name, gateway.requests[0].body], ["cancel", { id: sent.body.id }]);
    // Neither the late answer nor the loss of the cancellation has a receiver.
    sent.acknowledge(null, { ok: true, data: 1 });
    gateway.cut();
    await settle();
  });

  it("is not sent where its signal is aborted before, and not while it waits for its turn", async () => {
    const gateway = await welcomed({ limits: { max_payload_bytes: 1000, inbound_per_s: 10, inbound_burst: 1 } });
    await assert.rejects(request(gate, "orders.price", 1, { signal: AbortSignal.abort(Error("before")) }), { message: "before" });
    const first = request(gate, "orders.price", 1);
    const control = new AbortController();
    const second = request(gate, "orders.price", 2, { signal: control.signal });
    control.abort(Error("meanwhile"));
    await assert.rejects(second, { message: "meanwhile" });
    await gateway.until(() => gateway.requests.some(({ name }) => name === "cancel"), "the turn after it");
    assert.deepEqual(gateway.requests.map(({ name, body }) => [name, body.data]), [["request", 1], ["cancel", undefined]]);
    gateway.requests[0].acknowledge(null, { ok: true, data: 3 });
    assert.equal(await first, 3);
  });

  it("leaves no listener on the application's signal", async () => {
    const gateway = await welcomed();
    const { signal } = new AbortController();
    const { answer, sent } = await asked(gateway, { signal });
    assert.equal(getEventListeners(signal, "abort").length, 1);
    sent.acknowledge(null, { ok: true, data: 1 });
    await answer;
    assert.equal(getEventListeners(signal, "abort").length, 0);
  });

  it("refuses an invalid name, data that is not JSON or too large, and an unknown option, before anything is sent", async () => {
    const gateway = await welcomed();
    await assert.rejects(request(gate, "orders.*", 1), { code: "invalid_topic" });
    await assert.rejects(request(gate, "orders.price", undefined), { code: "not_serializable" });
    await assert.rejects(request(gate, "orders.price", "x".repeat(999)), { code: "payload_too_large", parts: { size: 1001, limit: 1000, where: "browser" } });
    for (const options of [{ timeoutMs: 0 }, { timeoutMs: 1.5 }, { timeoutMs: "1" }, { signal: 7 }, 7]) await assert.rejects(request(gate, "orders.price", 1, /** @type {any} */ (options)), TypeError);
    await settle();
    assert.deepEqual(gateway.requests, []);
  });
});
