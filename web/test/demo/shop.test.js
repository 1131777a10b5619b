/** The demo's shop: tokens that are good with the present server. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { Shop } from "../../demo/src/shop.js";

/** A server that signs with its number; `start` is another one, which knows no token of the first. */
class Server {
  number = 1;
  issued = 0;
  up = true;
  /** @type {string[]} the Authorization of each request that wants one */
  shown = [];

  start() {
    this.number++;
  }

  /** @param {string} path @param {any} request */
  answer(path, { headers }) {
    if (!this.up) throw new TypeError("fetch failed");
    if (path === "/demo/session") return json(200, { token: `${this.number}-${++this.issued}` });
    const { Authorization } = headers;
    this.shown.push(Authorization);
    if (!Authorization.startsWith(`Bearer ${this.number}-`)) return json(401, { code: "unauthorized", detail: "not ours" });
    return path === "/demo/burst" ? json(409, { code: "limit_reached", detail: "troubles at a time" }) : json(201, { id: "45" });
  }
}

/** @param {number} status @param {any} body */
function json(status, body) {
  return new Response(JSON.stringify(body), { status });
}

const { fetch } = globalThis;
/** @type {Server} */
let server;
/** @type {Shop} */
let shop;

beforeEach(() => {
  server = new Server();
  globalThis.fetch = /** @type {any} */ (async (/** @type {string} */ path, /** @type {any} */ request) => server.answer(path, request));
  shop = new Shop("ana");
});
afterEach(() => {
  globalThis.fetch = fetch;
});

test("each connection has a token of the server that is there now", async () => {
  assert.deepEqual([await shop.signIn(), await shop.signIn()], ["1-1", "1-2"]);
  server.start();
  assert.equal(await shop.signIn(), "2-3");
});

test("requests share the token, and get another one when the server refuses it", async () => {
  await shop.send("POST", "/demo/orders");
  await shop.send("POST", "/demo/orders");
  assert.deepEqual(server.shown, ["Bearer 1-1", "Bearer 1-1"]);
  server.start();
  assert.deepEqual(await shop.send("POST", "/demo/orders"), { id: "45" });
  assert.deepEqual(server.shown.slice(2), ["Bearer 1-1", "Bearer 2-2"]);
});

test("another refusal is an error with the server's words, and is not tried again", async () => {
  await assert.rejects(shop.send("POST", "/demo/burst"), { message: "troubles at a time" });
  assert.equal(server.shown.length, 1);
});

test("a server that is not there yet costs an attempt, not the session", async () => {
  server.up = false;
  await assert.rejects(shop.send("POST", "/demo/orders"), { message: "the server cannot be reached" });
  server.up = true;
  await shop.send("POST", "/demo/orders");
  assert.deepEqual(server.shown, ["Bearer 1-1"]);
});
