/** What a token lets a page do, against a real gateway. The client's side alone is in web/test, the gateway's in tests/unit/node. */
import assert from "node:assert/strict";
import { after, afterEach, before, it } from "node:test";
import { connect, userWord } from "headgate";
import { GatewayProcess, patient, until } from "./gateway-process.mjs";
import { SECRET, token } from "./tokens.mjs";

/** Names that Backbone, or a plain object as a table, would trip over. */
const TREACHEROUS = ["constructor", "__proto__", "hasOwnProperty", "toString", "valueOf", "all", "prototype", "on", "callback", "length", "0"];

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

for (const prefix of ["", "deep.__proto__."]) {
  it(`topics with treacherous names work as subscription, grant, publish and pattern, as ${prefix}…`, async () => {
    const topics = TREACHEROUS.map((name) => prefix + name);
    const gate = open({ token: token("ana", { subscribe: [...topics, `${prefix}*`], publish: [`${prefix}*`] }) });
    /** @type {string[]} */
    const [single, wild] = [[], []];
    for (const topic of topics) gate.subscribe(topic, (_data, event) => single.push(event.topic));
    gate.subscribe(`${prefix}*`, (_data, event) => wild.push(event.topic));
    for (const topic of [...topics, `${prefix}*`]) await gate.subscribed(topic);
    for (const topic of topics) assert.ok(await gate.publish(topic, { __proto__: null, constructor: topic }));
    await until(() => wild.length === topics.length, "every event");
    assert.deepEqual(single, topics);
    assert.deepEqual(wild, topics);
  });
}

it("the user's own topics, by users.me, are those of a user of any name, for the page that publishes and the one that listens", async () => {
  for (const sub of ["ana@example.org", "auth0|5f7c", "Ana Müller", "#", "me"]) {
    const gate = open({ token: token(sub, { publish: ["users.{sub}.#"] }) });
    /** @type {[string, any][]} */
    const mine = [];
    /** @type {[string, any][]} */
    const byWord = [];
    await gate.subscribe("users.me.#", (data, { topic }) => mine.push([topic, data])).ready;
    const word = `users.${userWord(sub)}.mail`;
    await gate.subscribe(word, (data, { topic }) => byWord.push([topic, data])).ready;
    await gate.publish("users.me.mail", sub);
    await until(() => mine.length && byWord.length, "the event");
    assert.deepEqual([mine, byWord], [[["users.me.mail", sub]], [[word, sub]]]);
    await assert.rejects(gate.subscribe("users.ben.#", () => {}).ready, { code: "forbidden" });
  }
});
