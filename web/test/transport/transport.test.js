/** The choice of a way to the gateway, and the way back from each fallback: scripted WebSockets, HTTP and chunks, and a clock that the tests move. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it, mock } from "node:test";
// A private module, which dist has inside its files.
import { createTransport } from "../../src/transport/transport.js";
import { createWayBack } from "../../src/transport/way-back.js";

const ADDRESS = "https://gateway.test/notifications";
const HTTP_MS = 300_000;
const SESSION = '0{"sid":"x","upgrades":[],"pingInterval":25000,"pingTimeout":20000,"maxPayload":2000}';

/** WebSockets that were made. @type {Socket[]} */
let sockets;
/** Calls of the transport over HTTP. @type {string[]} */
let http;
/** Calls of the owner. @type {string[]} */
let calls;
/** Whether the chunk of the transport over HTTP can be loaded. */
let isThere;
/** Pending while that chunk is loaded. */
let loading;
let transport;

class Socket {
  sent = [];

  constructor() {
    sockets.push(this);
  }

  send(text) {
    this.sent.push(text);
  }

  close() {
    this.closed = true;
  }
}

const settle = () => new Promise((resolve) => setImmediate(resolve));

async function pass(ms) {
  mock.timers.tick(ms);
  await settle();
}

/** A page in which no WebSocket gets through. */
async function block() {
  transport.connect();
  sockets.at(-1).onclose({ code: 1006, reason: "" });
  await settle();
}

beforeEach(() => {
  sockets = [];
  http = [];
  calls = [];
  isThere = true;
  loading = Promise.resolve();
  mock.timers.enable({ apis: ["setTimeout"] });
  mock.method(Math, "random", () => 0.5);
  mock.method(globalThis, "fetch", async () => new Response(SESSION));
  const note = (name) => (what) => calls.push(`${name} ${typeof what === "function" ? "" : what}`.trim());
  const owner = { greet: note("greet"), arrived: note("arrived"), lost: note("lost"), refused: note("refused") };
  const loadHttp = async () => {
    await loading;
    if (!isThere) throw TypeError("Failed to fetch dynamically imported module");
    const texts = (name) => () => void http.push(name);
    return { createWayBack, createHttp: () => ({ connect: texts("connect"), disconnect: texts("disconnect"), close: texts("close"), probe: texts("probe"), request: async () => ({}) }) };
  };
  transport = createTransport(ADDRESS, { WebSocket: Socket, path: "/socket.io", connectTimeoutMs: 20_000 }, owner, { loadHttp });
});

afterEach(() => {
  transport.close();
  mock.timers.reset();
  mock.restoreAll();
});

describe("a page that cannot load what HTTP needs", () => {
  it("tries a WebSocket with the next attempt, and HTTP again where that is blocked", async () => {
    isThere = false;
    await block();
    assert.deepEqual(calls, ["lost no transport: Failed to fetch dynamically imported module"]);
    transport.disconnect();
    isThere = true;
    await block();
    assert.deepEqual([sockets.length, http], [2, ["connect"]]);
  });
});

describe("a page that loads what HTTP needs for longer than its attempt", () => {
  for (const end of ["disconnect", "close"]) {
    it(`makes neither a connection nor a way back after ${end}`, async () => {
      let arrive;
      loading = new Promise((resolve) => (arrive = resolve));
      await block();
      transport[end]();
      arrive();
      await settle();
      await pass(HTTP_MS);
      assert.deepEqual([sockets.length, http, calls], [1, [], []]);
    });
  }
});

describe("a page over HTTP", () => {
  it("stays there over a reconnection", async () => {
    await block();
    transport.disconnect();
    transport.connect();
    assert.deepEqual([sockets.length, http], [1, ["connect", "disconnect", "connect"]]);
  });

  it("tries a WebSocket every few minutes without leaving its connection, and moves when it gets through", async () => {
    await block();
    await pass(HTTP_MS);
    assert.equal(sockets.length, 2);
    sockets[1].onclose({ code: 1006, reason: "" });
    await settle();
    assert.deepEqual([http, calls], [["connect"], []]);
    await pass(HTTP_MS);
    sockets[2].onmessage({ data: SESSION });
    assert.deepEqual([sockets[2].closed, http, calls], [true, ["connect", "disconnect"], ["lost a WebSocket gets through again"]]);
    transport.disconnect();
    transport.connect();
    assert.deepEqual([sockets.length, http.at(-1)], [4, "disconnect"]);
    await pass(10 * HTTP_MS);
    assert.ok(!sockets[3].sent.length && sockets.length === 4, "no trial of a way that is taken");
  });

  it("tries one soon, and not at once, when the network may be another", async () => {
    await block();
    transport.probe();
    transport.probe(1000);
    await pass(499);
    assert.equal(sockets.length, 1);
    await pass(1);
    assert.deepEqual([sockets.length, http], [2, ["connect", "probe", "probe"]]);
  });

  it("takes a WebSocket for its next attempt when it is time and there is no connection", async () => {
    await block();
    transport.disconnect();
    await pass(HTTP_MS);
    assert.equal(sockets.length, 1);
    transport.connect();
    assert.equal(sockets.length, 2);
  });

  it("gives up a trial with its connection", async () => {
    await block();
    await pass(HTTP_MS);
    transport.disconnect();
    assert.equal(sockets[1].closed, true);
    sockets[1].onmessage({ data: SESSION });
    transport.connect();
    assert.deepEqual([http, calls], [["connect", "disconnect", "connect"], []]);
  });

  it("leaves no timer when it is closed", async () => {
    await block();
    transport.close();
    await pass(10 * HTTP_MS);
    assert.equal(sockets.length, 1);
  });
});
