/** Tokens as pages meet them: our client and stock socket.io-client against a real gateway that knows a secret. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHmac } from "node:crypto";
import { after, afterEach, before, describe, it, mock } from "node:test";
import { promisify } from "node:util";
import { connect, userWord } from "headgate";
import { io } from "socket.io-client";
import { COMMAND, GatewayProcess, patient, until } from "./gateway-process.mjs";

const SECRET = "a secret of at least thirty-two bytes";
/** Names that Backbone, or a plain object as a table, would trip over. */
const TREACHEROUS = ["constructor", "__proto__", "hasOwnProperty", "toString", "valueOf", "all", "prototype", "on", "callback", "length", "0"];

/** @type {GatewayProcess} */
let gateway;
/** @type {{ close(): unknown }[]} */
const opened = [];

/** @param {object} claims @returns {string} */
function token(claims) {
  const now = Math.floor(Date.now() / 1000);
  const encode = (/** @type {object} */ part) => Buffer.from(JSON.stringify(part)).toString("base64url");
  const body = `${encode({ alg: "HS256", typ: "JWT" })}.${encode({ aud: "headgate", sub: "ana", iat: now, exp: now + 600, ...claims })}`;
  return `${body}.${createHmac("sha256", SECRET).update(body).digest("base64url")}`;
}

/** @param {number} seconds */
const inSeconds = (seconds) => Date.now() / 1000 + seconds;

/** @param {import("../../../web/src/connect.js").ConnectOptions} options */
function open(options) {
  const gate = patient(connect(gateway.url, { reconnectDelayMinMs: 20, reconnectDelayMaxMs: 100, ...options }));
  opened.push(gate);
  return gate;
}

/** Stock socket.io-client. @param {object} auth */
function openStock(auth) {
  const socket = io(`${gateway.url}/notifications`, { auth, transports: ["websocket"], forceNew: true, reconnection: false });
  opened.push(socket);
  /** @type {any[]} */
  const story = [];
  // Every client gets the feed's position every ten seconds, and the state of the bus when that changes.
  socket.onAny((name, ...args) => name !== "cursor" && !args[0].bus && story.push([name, ...args]));
  socket.on("disconnect", (reason) => story.push(["disconnect", reason]));
  socket.on("connect_error", (error) => story.push(["connect_error", /** @type {any} */ (error).data]));
  return { socket, story };
}

/** Stock socket.io-client with a token that expires soon, and that has let it in. It lives longer where that takes its time. */
async function openBriefly() {
  for (let lifeS = 1.5; ; lifeS *= 2) {
    const opened = openStock({ token: token({ exp: inSeconds(lifeS) }) });
    await until(() => opened.story.length, "an answer");
    if (opened.story[0][0] === "welcome") return opened;
    assert.equal(opened.story[0][1].reason, "expired");
  }
}

/**
 * A page with a first token that lives so long, until another client with such a token has been put out.
 *
 * @param {number} lifeS
 */
async function throughTheEndOf(lifeS) {
  let asked = 0;
  const exp = inSeconds(lifeS);
  const first = token({ subscribe: ["orders.#"], exp });
  // The refresh comes after four fifths of the rest of a life. A page with a fast clock believes that it ends much sooner.
  const { now } = Date;
  const clock = mock.method(Date, "now", () => now() + (lifeS - 2) * 1000);
  const gate = open({ token: () => (asked++ ? token({ subscribe: ["orders.#"], exp: inSeconds(600) }) : first) });
  /** @type {any[]} */
  const got = [];
  let downs = 0;
  gate.on("connection:down", () => downs++);
  gate.on("orders.*", (data) => got.push(data));
  await gate.subscribed("orders.*");
  clock.mock.restore();
  const { session } = gate.state;
  const witness = openStock({ token: token({ exp }) });
  await until(() => ["disconnect", "connect_error"].includes(witness.story.at(-1)?.[0]), "the first token's end", (lifeS + 30) * 1000);
  await headgate("publish", "orders.1", "1");
  await until(() => got.length, "the event");
  return { asked, downs, isSameSession: gate.state.session === session };
}

/** @param {string[]} words */
const headgate = (...words) => promisify(execFile)(COMMAND, words, { env: { ...process.env, HEADGATE_REDIS_URL: gateway.redisUrl } });

before(async () => {
  gateway = await new GatewayProcess({ HEADGATE_DEV: "", HEADGATE_TOKEN_SECRET: SECRET, HEADGATE_TOKEN_LEEWAY_S: "0" }).start();
});

afterEach(() => {
  for (const one of opened.splice(0)) one.close();
  mock.restoreAll();
});

after(() => gateway?.remove());

describe("a page with a token", () => {
  it("refreshes its token before it expires, and stays connected", async () => {
    // The refresh must leave enough of the life for a machine that stands still now and then.
    let outcome = await throughTheEndOf(8);
    for (let lifeS = 16; outcome.downs && lifeS <= 64; lifeS *= 2) outcome = await throughTheEndOf(lifeS);
    assert.deepEqual(outcome, { asked: 2, downs: 0, isSameSession: true });
  });
});

describe("stock socket.io-client", () => {
  it("is told why before it is put out", async () => {
    const { story } = await openBriefly();
    await until(() => story.at(-1)?.[0] === "disconnect", "the end");
    assert.deepEqual(story.map(([name]) => name), ["welcome", "status", "disconnect"]);
    assert.equal(story[1][1].unauthorized.reason, "expired");
    assert.equal(story[2][1], "io server disconnect");
  });

  it("is told what a refresh has ended, ahead of its acknowledgement", async () => {
    const { socket, story } = openStock({ token: token({ subscribe: ["a", "b"] }), subscriptions: [{ pattern: "a" }, { pattern: "b" }] });
    await until(() => story.length, "the welcome");
    const answer = await socket.emitWithAck("refresh", { token: token({ subscribe: ["b"] }) });
    assert.equal(answer.ok, true);
    assert.deepEqual(story.slice(1).map(([name, body]) => [name, body.ended.map((/** @type {any} */ one) => one.pattern)]), [["status", ["a"]]]);
  });
});

describe("topics with treacherous names", () => {
  for (const prefix of ["", "deep.__proto__."]) {
    it(`work as subscription, grant, publish and pattern, as ${prefix}…`, async () => {
      const topics = TREACHEROUS.map((name) => prefix + name);
      const gate = open({ token: token({ subscribe: [...topics, `${prefix}*`], publish: [`${prefix}*`] }) });
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
});

describe("the user's own topics, by users.me", () => {
  it("are those of a user of any name, for the page that publishes and the one that listens", async () => {
    for (const sub of ["ana@example.org", "auth0|5f7c", "Ana Müller", "#", "me"]) {
      const gate = open({ token: token({ sub, publish: ["users.{sub}.#"] }) });
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
});
