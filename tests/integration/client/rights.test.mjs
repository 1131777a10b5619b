/** A client's rights while it is connected: expiry, refresh and revocation against a real gateway. */
import assert from "node:assert/strict";
import { after, afterEach, before, it } from "node:test";
import { connect } from "headgate";
import { io } from "socket.io-client";
import { GatewayProcess, patient, until } from "./gateway-process.mjs";
import { SECRET, token } from "./tokens.mjs";

/** @type {GatewayProcess} */
let gateway;
/** @type {import("headgate").Gate[]} */
const gates = [];

/** @param {import("../../../web/src/connect.js").ConnectOptions} options */
function open(options) {
  const gate = patient(connect(gateway.url, { reconnectDelayMinMs: 20, reconnectDelayMaxMs: 100, ...options }));
  gates.push(gate);
  return gate;
}

/** @param {import("headgate").Gate} gate */
const isUp = (gate) => until(() => gate.state.connection === "up", "the connection to be up");

before(async () => {
  gateway = await new GatewayProcess({ HEADGATE_DEV: "0", HEADGATE_TOKEN_SECRET: SECRET, HEADGATE_TOKEN_LEEWAY_S: "0" }).start();
});

afterEach(() => {
  for (const gate of gates.splice(0)) gate.close();
});

after(() => gateway?.remove());

it("subscribes and publishes within its grants, and is told what lies outside", async () => {
  const gate = open({ token: token("ann", { subscribe: ["orders.#"], publish: ["orders.*"] }) });
  /** @type {any[]} */
  const got = [];
  gate.on("orders.*", (data) => got.push(data)).on("secrets.#", () => {});
  await isUp(gate);
  assert.equal(gate.state.user, "ann");
  await assert.rejects(gate.subscribed("secrets.#"), { code: "forbidden" });
  await assert.rejects(gate.publish("secrets.a", 1), { code: "forbidden", retry: false });
  await gate.publish("orders.a", 1);
  await until(() => got.length === 1, "the event");
});

it("says what its user was shown", async () => {
  const gate = open({ token: token("ann") });
  await isUp(gate);
  assert.equal((await gate.seen(["order:1", "order:2"])).seen, 2);
  await assert.rejects(gate.seen(["no id"]), { code: "invalid_event", retry: false });
  await assert.rejects(gate.seen([]), { code: "invalid_request", retry: false });
});

it("is refused with a token that has expired, and says why", async () => {
  const gate = open({ token: token("ann", { lifeS: -10 }) });
  const refusal = await new Promise((resolve) => gate.on("connection:refused", resolve));
  assert.deepEqual([refusal.code, refusal.parts.reason, gate.state.connection], ["unauthorized", "expired", "refused"]);
});

it("is put out when its token expires, comes back with another, and has missed nothing", async () => {
  /** @type {any[]} */
  const told = [];
  /** @type {any[]} */
  const got = [];
  const publisher = open({ token: token("ben", { publish: ["#"] }) });
  await isUp(publisher);
  let wasUp = false;
  let lifeS = 1;
  // A token that cannot be refreshed, because the function fails until the gateway has put the client out. The first one lives
  // longer where it has expired before the client is in.
  const gate = open({
    token: () => {
      if (gate.state.connection === "up") throw new Error("no token now");
      lifeS *= 2;
      return token("ann", { subscribe: ["#"], lifeS: wasUp ? 600 : lifeS });
    },
  });
  gate.on("news.#", (data) => got.push(data));
  gate.once("connection:up", () => {
    wasUp = true;
  });
  gate.on("connection:unauthorized", ({ code, parts }) => told.push([code, parts.reason]));
  const first = isUp(gate).then(() => publisher.publish("news.first", 1));
  gate.once("connection:down", () => void first.then(() => publisher.publish("news.away", 2)));
  await first;
  await until(() => told.length > 0, "to be put out");
  await isUp(gate);
  await until(() => got.length === 2, "what was published meanwhile");
  assert.deepEqual([told, got, gate.state.gaps], [[["unauthorized", "expired"]], [1, 2], 0]);
});

it("loses the subscriptions that a new token no longer grants, is told once, and keeps the others", async () => {
  const publisher = open({ token: token("ben", { publish: ["#"] }) });
  const gate = open({ token: token("ann", { subscribe: ["a.#", "b.#"] }) });
  /** @type {any[]} */
  const got = [];
  /** @type {any[]} */
  const errors = [];
  gate.on("a.x", () => got.push("a")).on("b.x", () => got.push("b"));
  gate.on("delivery:error", ({ pattern, error }) => errors.push([pattern, error.code]));
  await isUp(gate);
  await isUp(publisher);
  await gate.refresh(token("ann", { subscribe: ["b.#"] }));
  await until(() => errors.length > 0, "the news");
  await publisher.publish("a.x", 1);
  await publisher.publish("b.x", 1);
  await until(() => got.length > 0, "the event that it may see");
  assert.deepEqual([got, errors, gate.state.subscriptions], [["b"], [["a.x", "forbidden"]], { "a.x": "refused", "b.x": "active" }]);
  await gate.refresh(token("ann", { subscribe: ["a.#", "b.#"] }));
  await gate.subscribed("a.x");
  await publisher.publish("a.x", 2);
  await until(() => got.length === 2, "the event that it may see again");
});

it("will not take another user's token, and keeps its own", async () => {
  const gate = open({ token: token("ann", { subscribe: ["#"], publish: ["#"] }) });
  await isUp(gate);
  await assert.rejects(gate.refresh(token("ben")), (/** @type {any} */ error) => error.parts.reason === "another_user");
  await gate.publish("mine.still", 1);
});

it("is put out when its user is revoked, and does not ask for ever", async () => {
  const gate = open({ token: () => token("eve", { subscribe: ["#"] }), reconnectDelayMaxMs: 30 });
  /** @type {any[]} */
  const told = [];
  gate.on("connection:unauthorized", ({ parts }) => told.push(parts.reason));
  gate.on("connection:refused", ({ parts }) => told.push(parts.reason));
  await isUp(gate);
  await gateway.revoke("eve");
  await until(() => gate.state.connection === "refused", "to be refused for good");
  assert.deepEqual(told, ["revoked", "revoked"], "by the gateway, and once more by its answer to a new token");
});

it("gets other grants while it is connected: some end, some become possible, and a reconnect does not bring the token's back", async () => {
  const publisher = open({ token: token("ben", { publish: ["#"] }) });
  const gate = open({ token: token("fay", { subscribe: ["a.#"] }) });
  /** @type {any[]} */
  const got = [];
  /** @type {any[]} */
  const errors = [];
  gate.on("delivery:error", ({ pattern, error }) => errors.push([pattern, error.code]));
  gate.on("a.x", () => got.push("a")).on("b.x", () => got.push("b"));
  await isUp(publisher);
  await until(() => errors.length === 1, "the refusal");
  await gateway.command("regrant", "fay", "--subscribe", "b.#");
  await gate.subscribed("b.x");
  assert.deepEqual(errors, [["b.x", "forbidden"], ["a.x", "forbidden"]]);
  await publisher.publish("a.x", 1);
  await publisher.publish("b.x", 1);
  await until(() => got.length > 0, "the event that it may see");
  const down = new Promise((resolve) => gate.once("connection:down", resolve));
  await gateway.command("disconnect", "--user", "fay");
  await down;
  await isUp(gate);
  await assert.rejects(gate.subscribed("a.x"), { code: "forbidden" });
  await publisher.publish("a.x", 2);
  await publisher.publish("b.x", 2);
  await until(() => got.length > 1, "the event that it may see");
  assert.deepEqual(got, ["b", "b"]);
});

it("brings a fresh token when it is asked for one, without a reconnect", async () => {
  let subscribe = ["a.#"];
  const gate = open({ token: () => token("gil", { subscribe }) });
  let downs = 0;
  gate.on("connection:down", () => downs++).on("delivery:error", () => {});
  gate.on("a.x", () => {}).on("b.x", () => {});
  await isUp(gate);
  subscribe = ["b.#"];
  await gateway.command("regrant", "gil");
  await gate.subscribed("b.x");
  await until(() => gate.state.subscriptions["a.x"] === "refused", "what the fresh token does not grant to end");
  assert.equal(downs, 0);
});

it("tells a stock socket.io client of its new grants, which may use them at once", async () => {
  const socket = io(`${gateway.url}/notifications`, { auth: { token: token("hal", { subscribe: ["a.#"] }), subscriptions: [{ pattern: "a.x" }] } });
  try {
    await new Promise((resolve) => socket.once("welcome", resolve));
    const told = new Promise((resolve) => socket.once("status", resolve));
    await gateway.command("regrant", "hal", "--subscribe", "b.#");
    const { granted, ended } = /** @type {any} */ (await told);
    assert.deepEqual([granted, ended.map(({ pattern, error }) => [pattern, error.code])], [true, [["a.x", "forbidden"]]]);
    assert.equal((await socket.emitWithAck("subscribe", { pattern: "b.x" })).ok, true);
    assert.equal((await socket.emitWithAck("subscribe", { pattern: "a.x" })).error.code, "forbidden");
  } finally {
    socket.close();
  }
});

it("gets an event that was sent to its session alone, which has no grant and no place in the log", async () => {
  const publisher = open({ token: token("ben", { publish: ["#"] }) });
  const [gate, other] = ["ida", "ida"].map((user) => open({ token: token(user, { subscribe: ["a.#"] }) }));
  /** @type {any[]} */
  const got = [];
  gate.on("delivery:error", () => {}).on("hint.x a.x", (data, { topic, offset }) => got.push([topic, data, offset]));
  other.on("delivery:error", () => {}).on("hint.x", (data) => got.push(data));
  for (const each of [publisher, gate, other]) await isUp(each);
  await gate.subscribed("a.x");
  const { offset } = await publisher.publish("a.x", 1);
  await until(() => got.length === 1, "the first event");
  assert.equal(await gateway.send(/** @type {string} */ (gate.state.session), "hint.x", { n: 2 }), true);
  await until(() => got.length === 2, "the event for this session");
  assert.equal(gate.state.offset, offset);
  await publisher.publish("a.x", 3);
  await until(() => got.length === 3, "the next event");
  assert.deepEqual(got, [["a.x", 1, offset], ["hint.x", { n: 2 }, null], ["a.x", 3, offset + 1]]);
  assert.deepEqual([gate.state.gaps, gate.state.offset], [0, offset + 1]);
});
