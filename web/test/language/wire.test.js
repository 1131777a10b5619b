/** The wire, by the vectors that Python's tests read too: the gateway's messages are understood, the client's are as written. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { afterEach, describe, it, mock } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { Decoder } from "socket.io-parser";
import { connect } from "#headgate";
// A private module, which is in no file of dist by itself.
import * as protocol from "../../src/language/protocol.js";
import { FakeGateway } from "../fake-gateway.js";

const golden = JSON.parse(await readFile(new URL("../../../tests/golden/wire.json", import.meta.url), "utf8"));
let gate;

/** Decode as socket.io-client does. */
function decoded(packet) {
  const packets = [];
  const decoder = new Decoder();
  decoder.on("decoded", (each) => packets.push(each));
  decoder.add(packet);
  assert.equal(packets.length, 1);
  return packets[0];
}

/** A name of the wire as an application finds it: `queued_bytes` as `queuedBytes`. */
const named = (name) => name.split("_").map((word, at) => (at ? word[0].toUpperCase() + word.slice(1) : word)).join("");

/** A body of the wire as an application finds it. */
function found(body) {
  if (Array.isArray(body)) return body.map(found);
  if (body === null || typeof body !== "object") return body;
  return Object.fromEntries(Object.entries(body).map(([name, value]) => [named(name), found(value)]));
}

async function open(options = {}) {
  const gateway = new FakeGateway();
  gate = connect("http://gateway.test", { io: gateway.io, reconnectDelayMinMs: 1, reconnectDelayMaxMs: 2, ...options });
  await gateway.welcome({ epoch: "0123456789abcdef", offset: 0, limits: { max_payload_bytes: 65536 } });
  return gateway;
}

afterEach(() => {
  gate?.close();
  mock.restoreAll();
});

describe("packets of the gateway", () => {
  for (const { name, packet, message } of [...golden.events, ...golden.notices]) {
    it(`are read by socket.io's parser: ${name}`, () => {
      const { nsp, data } = decoded(packet);
      assert.equal(nsp, `/${golden.namespace}`);
      assert.deepEqual(data, message);
    });
  }
});

describe("events", () => {
  for (const { name, event, replayed, packet } of golden.events) {
    it(`reach their handler: ${name}`, async () => {
      const gateway = await open();
      const got = [];
      gate.subscribe(event.topic, (data, seen) => got.push([data, seen]));
      gateway.emit(...decoded(packet).data);
      const data = JSON.parse(event.data);
      const { topic, id, time_ms: time, offset } = event;
      assert.deepEqual(got, [[data, { topic, data, id, time, offset, replayed, pattern: topic }]]);
      assert.equal({}.polluted, undefined);
    });
  }
});

describe("notices", () => {
  const received = {
    [protocol.GAP]: "delivery:gap",
    [protocol.BACKPRESSURE]: "delivery:backpressure",
    [protocol.WELCOME]: "connection:up",
  };
  for (const { name, message, answer } of golden.notices) {
    it(`are reported or kept: ${name}`, async () => {
      const gateway = await open();
      const [kind, body] = message;
      const reported = [];
      gate.on("all", (each, notice) => reported.push([each, notice]));
      // A connection has one welcome.
      if (kind === protocol.WELCOME) {
        gateway.cut();
        await gateway.until(() => gateway.connects.length === 2, "CONNECT 2");
        gateway.connected = true;
      }
      gateway.emit(kind, structuredClone(body));
      if (received[kind]) assert.ok(reported.some(([each, notice]) => each === received[kind] && isDeepStrictEqual({ ...notice, ...found(body) }, notice)));
      if (kind === protocol.CURSOR) assert.deepEqual([gate.state.epoch, gate.state.offset], [body.epoch, body.offset]);
      if (answer) assert.deepEqual(await gateway.answer(answer[0]), answer[1]);
      if (body.bus) assert.equal(gate.state.bus, body.bus);
      if (body.moving) assert.deepEqual(reported.find(([each]) => each === "connection:moving")[1], found(body.moving));
      if (kind === protocol.WELCOME) assert.deepEqual([gate.state.session, gate.state.limits], [body.session, found(body.limits)]);
      if (kind === protocol.GAP) {
        const { repairing, lost, ...gap } = reported.find(([each]) => each === "delivery:gap")[1];
        assert.deepEqual([gap, repairing, lost], [body, false, !body.recoverable]);
      }
    });
  }
});

/** Return the gateway's words in an error, which begins with them and continues with the cure. */
const saidBy = ({ message }, words) => (message.startsWith(`${words.replace(/\.$/, "")}. `) ? words : message);

describe("requests", () => {
  const ask = {
    subscribe: ({ pattern, ...options }) => gate.subscribe(pattern, options, () => {}).ready,
    publish: ({ topic, data, ...options }) => gate.publish(topic, data, options),
    refresh: ({ token }) => gate.refresh(token),
    replay: ({ pattern, ...range }) => gate.replay(pattern, range),
    seen: ({ ids }) => gate.seen(ids),
    unsubscribe: async ({ pattern }) => gate.off(pattern),
  };
  for (const { name, message, reply } of golden.requests) {
    it(`are sent as written, and the answer understood: ${name}`, async () => {
      const gateway = await open();
      const [kind, body] = message;
      if (kind === "unsubscribe") {
        gate.on(body.pattern, () => {});
        await gateway.answer("subscribe");
      }
      const outcome = ask[kind](body).then(
        (value) => ({ value }),
        (error) => ({ error }),
      );
      const sent = await gateway.answer(kind, reply);
      // Our client always says in which epoch it means a range, and gives each event an id.
      const more = { replay: { epoch: "0123456789abcdef" }, publish: { id: sent.id } }[kind];
      assert.deepEqual(sent, { ...more, ...body });
      if (kind === "subscribe" && reply.error?.retry) return;
      const { value, error } = await outcome;
      if (reply.ok) assert.equal(error, undefined);
      if (kind === "publish" && reply.ok) assert.deepEqual({ ok: true, ...value }, reply);
      if (!reply.ok) {
        const { code, message: text, retry, ...parts } = reply.error;
        assert.deepEqual([error.name, error.code, saidBy(error, text), error.retry, error.parts], ["HeadgateError", code, text, retry, found(parts)]);
      }
    });
  }

  it("cover every request there is", () => {
    const { SUBSCRIBE, UNSUBSCRIBE, PUBLISH, REFRESH, REPLAY, SEEN } = protocol;
    const known = new Set([SUBSCRIBE, UNSUBSCRIBE, PUBLISH, REFRESH, REPLAY, SEEN]);
    assert.deepEqual(new Set(golden.requests.map(({ message }) => message[0])), known);
  });
});

describe("CONNECT", () => {
  for (const { name, auth } of golden.connects) {
    it(`carries token, position and subscriptions: ${name}`, async () => {
      const gateway = new FakeGateway();
      gate = connect("http://gateway.test", { io: gateway.io, token: auth.token, resume: auth.resume, autoConnect: false });
      for (const { pattern, ...options } of auth.subscriptions) gate.on(pattern, () => {}, null, options);
      gate.open();
      await gateway.until(() => gateway.connects.length === 1);
      assert.deepEqual(gateway.connects[0], auth);
    });
  }

  for (const { name, data } of golden.refusals) {
    it(`gets the reason of its refusal: ${name}`, async () => {
      const gateway = new FakeGateway();
      gate = connect("http://gateway.test", { io: gateway.io });
      const reported = [];
      gate.on("connection:refused", (error) => reported.push(error));
      await gateway.until(() => gateway.connects.length === 1);
      gateway.refuse(data, data.message);
      const { code, message, retry, ...parts } = data;
      assert.deepEqual([reported[0].code, saidBy(reported[0], message), reported[0].retry, reported[0].parts], [code, message, retry, found(parts)]);
      assert.equal(gate.state.connection, retry ? "waiting" : "refused");
    });
  }
});

describe("docs/protocol.md", () => {
  it("has every message, request, policy and error code that the code has", async () => {
    const read = (/** @type {string} */ path) => readFile(new URL(`../../../${path}`, import.meta.url), "utf8");
    const page = await read("docs/protocol.md");
    const errors = `${await read("gateway/headgate/errors.py")}${await read("web/src/language/errors.js")}`;
    const codes = [...errors.matchAll(/^ {4}code = "(\w+)"|new HeadgateError\("(\w+)"/gm)].map(([, python, script]) => python ?? script);
    const browser = ["disconnected", "timeout", "closed", "token_unavailable", "unreachable", "refused"];
    assert.ok(codes.length >= 14);
    // Of a process that does not start; no client gets it.
    const reported = codes.filter((code) => code !== "invalid_settings");
    const names = Object.values(protocol).flat().filter((name) => typeof name === "string");
    for (const name of [...reported, ...browser, ...names]) assert.match(page, new RegExp(`\`${name}\\b`), name);
  });
});
