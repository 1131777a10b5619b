/** The client over its own WebSocket: a scripted socket in the place of the browser's, and a clock that the tests move. */
import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { afterEach, beforeEach, describe, it, mock } from "node:test";
import { connect } from "#headgate";
// A private module, which is in no file of dist by itself.
import { createPackets } from "../../src/transport/packets.js";
import { settle } from "../fake-gateway.js";

const golden = JSON.parse(await readFile(new URL("../../../tests/golden/wire.json", import.meta.url), "utf8"));
const SESSION = { sid: "x", upgrades: [], pingInterval: 25_000, pingTimeout: 20_000, maxPayload: 2000 };
const GRACE_MS = 1000;

const answer = (status, text, headers = {}) => async () => new Response(text, { status, headers });
const SESSION_BEGUN = answer(200, `0${JSON.stringify(SESSION)}`);

/** @type {ScriptedSocket[]} those that the client made, in order */
let sockets;
/** @type {import("../../src/gate.js").Gate} */
let gate;
let nowMs;
/** The answers over HTTP, as a function of the address. */
let http;

class ScriptedSocket {
  sent = [];
  closed = false;

  constructor(url) {
    this.url = url;
    sockets.push(this);
  }

  send(text) {
    this.sent.push(text);
  }

  close() {
    this.closed = true;
  }

  /** A message from the gateway. */
  says(data) {
    this.onmessage({ data });
  }

  /** The connection ends. */
  ends(code = 1006, reason = "") {
    this.onclose({ code, reason });
  }
}

/** The clock advances, and all due callbacks run. */
async function pass(ms) {
  nowMs += ms;
  mock.timers.tick(ms);
  await settle();
}

async function open(options = {}) {
  gate = connect("https://gateway.test", { WebSocket: ScriptedSocket, reconnectDelayMinMs: 10, reconnectDelayMaxMs: 20, ...options });
  await settle();
  return sockets[0];
}

/** The gateway begins a session. */
async function begin(socket = sockets.at(-1)) {
  socket.says(`0${JSON.stringify(SESSION)}`);
  await settle();
}

/** The gateway begins a session and lets the client in. */
async function welcome(socket = sockets.at(-1), limits = { max_payload_bytes: 1500 }) {
  await begin(socket);
  socket.says('40/notifications,{"sid":"y"}');
  const body = { session: "s", epoch: "e", offset: 100, resumed: null, limits, subscriptions: [] };
  socket.says(`42/notifications,${JSON.stringify(["welcome", body])}`);
  await settle();
}

/** Open, and be welcomed. */
async function openWelcomed(options) {
  const socket = await open(options);
  await welcome(socket);
  return socket;
}

/** A socket ends, and that has its effect. */
async function ends(nth = 0) {
  sockets[nth].ends();
  await settle();
}

/** Return the body of the CONNECT that was sent. */
const connectOf = (socket) => JSON.parse(socket.sent.find((text) => text.startsWith("40")).slice("40/notifications,".length));

/** Have the reasons of connection:down and the errors of connection:refused noted. */
function note() {
  const reported = [];
  gate.on("connection:down", ({ reason }) => reported.push(reason));
  gate.on("connection:refused", (error, { delayMs }) => reported.push([error.code, error.parts.reason, delayMs]));
  return reported;
}

/** Open, and have these noted. */
async function openNoted(options) {
  await open(options);
  return note();
}

/** The same, and be welcomed. */
async function welcomedNoted() {
  const reported = await openNoted();
  await welcome();
  return reported;
}

beforeEach(() => {
  sockets = [];
  nowMs = 1000;
  http = () => Promise.reject(new TypeError("fetch failed"));
  mock.timers.enable({ apis: ["setTimeout"] });
  mock.method(performance, "now", () => nowMs);
  mock.method(Math, "random", () => 0);
  mock.method(globalThis, "fetch", async (url, options) => http(url, options));
  mock.method(console, "error", () => {});
});

afterEach(() => {
  gate?.close();
  mock.timers.reset();
  mock.restoreAll();
});

describe("packets", () => {
  // language/wire.test.js has socket.io's parser read them to the same messages.
  for (const { name, packet, message } of [...golden.events, ...golden.notices]) {
    it(`are read as socket.io's parser reads them: ${name}`, () => assert.deepEqual(createPackets(`/${golden.namespace}`).read(`4${packet}`).data, message));
  }

  for (const text of ['42/a,"x"', "42/a,", "42/a,[1]", "42/a,{", '45/a,1-["x"]', new ArrayBuffer(2)]) {
    it(`that are none of an event are not taken for one: ${text}`, () => {
      assert.throws(() => createPackets("/a").read(text));
    });
  }

  it("of another namespace are no events", () => {
    assert.deepEqual(createPackets("/a").read('42/b,["x"]'), {});
    assert.deepEqual(createPackets("/a").read('42["x"]'), {});
    assert.deepEqual(createPackets("/").read('42/b,["x"]'), {});
    assert.deepEqual(createPackets("/a").read('43/b,1["x"]'), {});
    assert.deepEqual(createPackets("/").read('42["x",1]').data, ["x", 1]);
  });
});

describe("over a WebSocket", () => {
  it("joins, gets events, and has its requests acknowledged", async () => {
    const socket = await open({ token: "t", path: "/here/" });
    const got = [];
    gate.on("a.*", (data) => got.push(data));
    assert.equal(socket.url, "wss://gateway.test/here/?EIO=4&transport=websocket");
    assert.deepEqual(socket.sent, []);
    await welcome(socket);
    assert.equal(connectOf(socket).token, "t");
    assert.equal(gate.state.connection, "up");
    socket.says('42/notifications,["event","a.b",7,{"id":"i","time":1,"offset":101}]');
    assert.deepEqual(got, [7]);
    const receipt = gate.publish("a.b", 1);
    await settle();
    const request = socket.sent.at(-1);
    assert.match(request, /^42\/notifications,\d+\["publish",\{"topic":"a.b","data":1,"id":"[\d-]+"\}\]$/);
    socket.says(`43/notifications,${/,(\d+)/.exec(request)[1]}[{"ok":true,"epoch":"e","offset":102}]`);
    assert.deepEqual(await receipt, { epoch: "e", offset: 102 });
  });

  it("passes over messages of a later protocol, and of other namespaces", async () => {
    const reported = await welcomedNoted();
    for (const text of ["6", '42/other,["event","a",1,{}]', '43/notifications,99[{"ok":true}]', '42/notifications,["news",1]']) sockets[0].says(text);
    assert.deepEqual([reported, gate.state.connection], [[], "up"]);
  });

  it("answers pings, and loses a gateway that is silent for longer than it said", async () => {
    const reported = await welcomedNoted();
    await pass(40_000);
    sockets[0].says("2");
    assert.equal(sockets[0].sent.at(-1), "3");
    await pass(SESSION.pingInterval + SESSION.pingTimeout - 1);
    assert.deepEqual(reported, []);
    await pass(1);
    assert.deepEqual(reported, [], "messages that wait have their turn");
    await pass(GRACE_MS);
    assert.deepEqual(reported, ["ping timeout"]);
    assert.equal(sockets[0].closed, true);
  });

  it("stays when a page that slept finds messages waiting", async () => {
    const reported = await welcomedNoted();
    await pass(600_000);
    sockets[0].says("2");
    await pass(GRACE_MS);
    await pass(GRACE_MS);
    assert.deepEqual([reported, gate.state.connection], [[], "up"]);
  });

  for (const [what, message] of Object.entries({
    "is binary": new ArrayBuffer(2),
    "announces binary": '451-/notifications,["event",{"_placeholder":true,"num":0}]',
    "is no JSON": '42/notifications,["event",',
    "is no event": "42/notifications,[7]",
    "is an acknowledgement without an answer": '43/notifications,0{"a":',
    "begins a second session": `0${JSON.stringify(SESSION)}`,
    "joins twice": '40/notifications,{"sid":"z"}',
  })) {
    it(`ends the connection and comes back when a message ${what}`, async () => {
      const reported = await welcomedNoted();
      sockets[0].says(message);
      assert.deepEqual(reported, ["parse error"]);
      await pass(20);
      assert.equal(sockets.length, 2);
    });
  }

  it("does not come up with a gateway that sends no pings", async () => {
    const reported = await openNoted();
    sockets[0].says('0{"sid":"x"}');
    await settle();
    assert.deepEqual(reported, [["unreachable", "parse error", 10]]);
  });

  for (const [code, body] of [["forbidden", '{"message":"no","data":{"code":"forbidden","message":"no","retry":false}}'], ["unknown_namespace", '{"message":"Invalid namespace"}']]) {
    it(`reports the namespace's refusal: ${code}`, async () => {
      const reported = await openNoted();
      await begin();
      sockets[0].says(`44/notifications,${body}`);
      assert.deepEqual([reported[0][0], gate.state.connection, sockets[0].closed], [code, "refused", true]);
    });
  }

  it("says why the gateway closed, and comes back", async () => {
    const reported = await welcomedNoted();
    sockets[0].ends(1008, "unauthorized: expired");
    await pass(20);
    await welcome();
    sockets[1].says("41/notifications,");
    await pass(20);
    await welcome();
    sockets[2].says("1");
    await pass(20);
    await welcome();
    sockets[3].ends();
    assert.deepEqual(reported, ["transport close: 1008 unauthorized: expired", "io server disconnect", "io server disconnect", "transport close"]);
  });

  it("refuses a message longer than the gateway accepts, and stays connected", async () => {
    await open();
    await welcome(undefined, {});
    const sent = sockets[0].sent.length;
    await assert.rejects(gate.publish("a", "€".repeat(700), { id: "x" }), { code: "payload_too_large", parts: { size: 2162, limit: 2000, where: "browser" } });
    assert.deepEqual([sockets[0].sent.length, gate.state.connection], [sent, "up"]);
  });

  it("rejects requests without an answer in time, and those whose connection ends", async () => {
    await openWelcomed({ requestTimeoutMs: 500 });
    const late = [assert.rejects(gate.seen(["i"]), { code: "timeout", retry: true }), assert.rejects(gate.publish("a", 1, { id: "x" }), { code: "outcome_unknown", retry: false, parts: { id: "x", topic: "a", reason: "timeout" } })];
    await pass(500);
    await Promise.all(late);
    const cut = assert.rejects(gate.publish("a", 1, { id: "x" }), { code: "outcome_unknown", retry: false, parts: { id: "x", topic: "a", reason: "disconnected" } });
    await settle();
    sockets[0].ends();
    await cut;
  });

  it("ignores a socket that it has left", async () => {
    const socket = await open();
    const got = [];
    gate.on("a", (data) => got.push(data));
    await welcome();
    gate.close();
    assert.equal(socket.sent.at(-1), "41/notifications,");
    assert.equal(socket.closed, true);
    socket.says('42/notifications,["event","a",1,{}]');
    socket.ends();
    await pass(60_000);
    assert.deepEqual([got, sockets.length], [[], 1]);
  });
});

it("says goodbye when it is closed, and not when it moves: presence would end with it", async () => {
  await openWelcomed({ reconnectDelayMinMs: 0, reconnectDelayMaxMs: 1 });
  const sent = sockets[0].sent.length;
  sockets[0].says('42/notifications,["status",{"moving":{"reason":"draining","within_s":0}}]');
  await pass(1000);
  assert.deepEqual([sockets.length, sockets[0].closed, sockets[0].sent.length], [2, true, sent]);
});

describe("when a WebSocket cannot be opened", () => {
  const FULL = { code: "limit_reached", message: "limit reached: clients (at most 10)", retry: true, name: "clients", limit: 10 };
  for (const [what, reply, code, text, parts] of /** @type {[string, () => Promise<Response>, string, RegExp, object][]} */ ([
    ["an answer with a header", answer(503, '{"code":"bus_unavailable","message":"about to stop"}', { "Retry-After": "7" }), "unreachable", /about to stop \(HTTP 503\)/, {}],
    ["an error of the gateway's", answer(503, JSON.stringify({ code: 3, message: "Bad request: limit reached", error: { ...FULL, retry_after_s: 7 } })), FULL.code, /^limit reached: clients \(at most 10\)/, { retryAfterS: 7, name: "clients", limit: 10 }],
    ["an error without a time, with a header", answer(429, JSON.stringify({ error: FULL }), { "Retry-After": "7" }), FULL.code, /^limit reached/, { name: "clients" }],
  ])) {
    it(`reports what HTTP answers, and comes again when that says: ${what}`, async () => {
      http = reply;
      await open();
      const reported = [];
      gate.on("connection:refused", (error, { delayMs }) => reported.push({ ...error.parts, delayMs, code: error.code, message: error.message }));
      await ends(0);
      assert.equal(reported.length, 1);
      assert.match(reported[0].message, text);
      assert.deepEqual({ ...reported[0], ...parts, delayMs: 7000, code }, reported[0]);
      await pass(6999);
      assert.equal(sockets.length, 1);
      await pass(1);
      assert.equal(sockets.length, 2);
    });
  }

  it("does not come again after a lasting refusal", async () => {
    http = answer(421, '{"error":{"code":"unknown_host","message":"m","retry":false,"host":"x"}}');
    const reported = await openNoted();
    await ends(0);
    assert.deepEqual([reported[0][0], reported[0][2], gate.status], ["unknown_host", null, "refused"]);
  });

  it("waits, and loads nothing, where HTTP does not get through either", async () => {
    const reported = await openNoted();
    sockets[0].onerror({}); // in Chromium no `close` follows where a Content-Security-Policy forbids the address
    await settle();
    await pass(10);
    sockets[1].onerror({ message: "connect ECONNREFUSED" });
    await ends(1);
    assert.deepEqual(reported.map(([, reason]) => reason), ["websocket error", "connect ECONNREFUSED"]);
  });

  for (const [reason, reply] of /** @type {[string, (url: string, options: any) => any][]} */ ([
    ["HTTP 200", answer(200, "<!doctype html><div id=app></div>")],
    // It is not followed: a sign-in page of another site has no answer to read.
    ["HTTP redirect", (_url, { redirect }) => (redirect === "manual" ? { status: 0, headers: new Headers(), text: async () => "" } : Promise.reject(TypeError("Failed to fetch")))],
  ])) {
    it(`says that another server answers: ${reason}`, async () => {
      http = reply;
      const reported = await openNoted();
      await ends(0);
      assert.equal(reported[0][1], reason);
    });
  }

  it("asks when nothing comes of it for half the time of an attempt", async () => {
    http = answer(502, "<html>");
    const reported = await openNoted({ connectTimeoutMs: 3000 });
    await pass(1499);
    assert.deepEqual(reported, []);
    nowMs += 1;
    mock.timers.tick(1);
    // The browser reports the end of the socket that it was asked to close.
    await ends(0);
    assert.deepEqual([reported[0][1], sockets[0].closed], ["HTTP 502", true]);
  });

  it("never uses HTTP where only a WebSocket is wanted, leaves no session open, and asks no cache, which could answer with another's", async () => {
    const asked = [];
    http = (url, { method, body, cache }) => {
      asked.push([url, method, body, cache]);
      return SESSION_BEGUN();
    };
    const reported = await openNoted({ transport: "websocket" });
    await ends(0);
    assert.deepEqual(reported, [["unreachable", "websocket error", 10]]);
    const polling = "https://gateway.test/socket.io/?EIO=4&transport=polling";
    assert.deepEqual(asked, [[polling, undefined, undefined, "no-store"], [`${polling}&sid=x`, "POST", "1", "no-store"]]);
  });

  it("names the origin that may not be allowed where a page of another origin gets no answer", async () => {
    for (const [origin, reason] of [
      ["http://localhost:5173", "websocket error: no answer, or the gateway may not allow the origin http://localhost:5173 (HEADGATE_ALLOWED_ORIGINS)"],
      // A frame in a sandbox: its address is the gateway's, and its origin is none.
      ["null", "websocket error: no answer, or the gateway may not allow the origin null (HEADGATE_ALLOWED_ORIGINS)"],
      ["https://gateway.test", "websocket error"],
    ]) {
      Object.assign(globalThis, { origin, location: { origin: "https://gateway.test" } });
      try {
        sockets = [];
        const reported = await openNoted();
        await ends(0);
        assert.deepEqual(reported, [["unreachable", reason, 10]]);
        gate.close();
      } finally {
        for (const name of ["origin", "location"]) Reflect.deleteProperty(globalThis, name);
      }
    }
  });

  it("gives up asking when the gate closes", async () => {
    let signal;
    http = (_url, options) => new Promise(() => ({ signal } = options));
    const reported = await openNoted();
    await ends(0);
    assert.equal(signal.aborted, false);
    gate.close();
    await settle();
    assert.deepEqual([signal.aborted, reported], [true, []]);
  });

  it("tries a WebSocket once more, if one has worked, before it takes another way", async () => {
    await openWelcomed({ transport: undefined });
    http = SESSION_BEGUN;
    sockets[0].ends();
    await pass(20);
    await ends(1);
    await pass(20);
    assert.equal(sockets.length, 3);
  });

  for (const [what, end] of /** @type {[string, (socket: ScriptedSocket) => void][]} */ ([["end", (socket) => socket.ends()], ["carry no message of the page, so that the gateway gives up", (socket) => socket.says("1")]])) {
    it(`goes by HTTP where WebSockets are opened, and ${what} before the client is let in`, async () => {
      const asked = [];
      http = (url) => {
        asked.push(url);
        return url.includes("/stream?") ? new Promise(() => {}) : SESSION_BEGUN();
      };
      await open({ transport: undefined });
      await begin();
      end(sockets[0]);
      await settle();
      for (let turn = 0; turn < 10_000 && !asked.at(-1)?.includes("/stream?"); turn++) await settle();
      assert.deepEqual([sockets.length, asked.at(-1)], [1, "https://gateway.test/socket.io/stream?namespace=notifications"]);
    });
  }

  it("stays with WebSockets where the gateway gives up because the token does not come", async () => {
    const asked = [];
    http = (url) => asked.push(url);
    const reported = await openNoted({ transport: undefined, token: () => new Promise(() => {}) });
    await begin();
    sockets[0].says("1");
    await settle();
    assert.deepEqual([reported[0][1], asked], ["no token in time", []]);
  });
});

describe("when the network or the page was away", () => {
  const PROBE_MS = 2000;
  /** The page's listeners. @type {Record<string, () => void>} */
  let page;
  let wallMs;

  beforeEach(() => {
    page = {};
    wallMs = 1e12;
    Object.assign(globalThis, { addEventListener: (name, listener) => (page[name] = listener), document: { hidden: false } });
    mock.method(Date, "now", () => wallMs);
  });

  afterEach(() => {
    for (const name of ["addEventListener", "document"]) Reflect.deleteProperty(globalThis, name);
  });

  /** Time advances for the page and on the wall clock. */
  async function live(ms) {
    for (; ms > 0; ms -= 1000) {
      wallMs += Math.min(ms, 1000);
      await pass(Math.min(ms, 1000));
    }
  }

  /** The machine sleeps, then the page's timers continue where they were. */
  async function sleep(ms) {
    wallMs += ms;
    await live(5000);
  }

  const asked = (socket) => socket.sent.filter((text) => text === "2").length;

  for (const name of ["offline", "online", "visibilitychange", "pageshow"]) {
    it(`asks at once for a sign of life, and stays connected with one: ${name}`, async () => {
      const socket = await openWelcomed();
      page[name]();
      assert.equal(asked(socket), 1);
      await live(PROBE_MS - 1);
      socket.says("3");
      await live(GRACE_MS + PROBE_MS);
      assert.deepEqual([gate.status, sockets.length, socket.closed], ["live", 1, false]);
    });

    it(`replaces a socket that gives no sign of life in a short time: ${name}`, async () => {
      const socket = await openWelcomed();
      const reported = note();
      page[name]();
      await live(PROBE_MS + GRACE_MS);
      assert.deepEqual([gate.status, reported, socket.closed], ["waiting", ["ping timeout"], true]);
      await live(10);
      assert.equal(sockets.length, 2);
    });
  }

  it("takes any message for a sign of life", async () => {
    const socket = await openWelcomed();
    page.offline();
    await live(PROBE_MS);
    socket.says('42/notifications,["cursor",{"epoch":"e","offset":101}]');
    await live(GRACE_MS + PROBE_MS);
    assert.equal(gate.status, "live");
  });

  it("does not postpone the end by repeated probes", async () => {
    await openWelcomed();
    for (let nth = 0; nth < 3; nth++) {
      page.visibilitychange();
      await live(1000);
    }
    assert.equal(gate.status, "waiting");
  });

  it("leaves an attempt that is under way when the network goes", async () => {
    const reported = await openNoted();
    page.offline();
    assert.deepEqual(reported, [["unreachable", "offline", 10]]);
  });

  it("asks when the clock has jumped, for the machine slept", async () => {
    const socket = await openWelcomed();
    await live(20_000);
    assert.equal(asked(socket), 0);
    await sleep(60_000);
    assert.equal(asked(socket), 1);
    await live(PROBE_MS + GRACE_MS);
    assert.equal(gate.status, "waiting");
  });

  it("connects a hidden page that comes out of the back/forward cache, and not one that is on its way there", async () => {
    await openWelcomed();
    globalThis.document.hidden = true;
    page.pagehide();
    page.visibilitychange();
    assert.equal(gate.status, "paused");
    page.pageshow();
    assert.deepEqual([gate.status, sockets.length], ["connecting", 2]);
  });

  it("sends no new request for a moment when it is time to move, so that a busy page gets all its answers", async () => {
    const socket = await openWelcomed();
    const [quick, long] = [gate.publish("a", 1), gate.publish("a", 2)];
    const answerTo = (nth) => socket.says(`43/notifications,${/^42.notifications,(\d+)/.exec(socket.sent.filter((text) => text.includes("publish"))[nth])[1]}[{"ok":true,"id":"i","epoch":"e","offset":10${nth}}]`);
    socket.says('42/notifications,["status",{"moving":{"reason":"deploy","within_s":0}}]');
    await pass(0);
    await assert.rejects(gate.publish("a", 3), { code: "disconnected", retry: true });
    answerTo(0);
    assert.equal((await quick).offset, 100);
    // One that takes longer holds up the others only so long.
    for (let ms = 0; ms < 600; ms += 20) await pass(20);
    const sent = gate.publish("a", 4);
    await settle();
    assert.equal(gate.status, "moving");
    answerTo(2);
    assert.equal((await sent).offset, 102);
    answerTo(1);
    await long;
    await pass(20);
    await pass(20);
    assert.equal(sockets.length, 2);
  });

  it("publishes while the page ends, by a request that outlives it", async () => {
    const sent = [];
    http = (url, options) => {
      sent.push([url, options]);
      return answer(200, '{"ok":true,"id":"mine","epoch":"e","offset":7}')();
    };
    await openWelcomed({ token: "t", auth: { shop: 7 } });
    page.pagehide();
    assert.deepEqual(await gate.publish("orders.42", 8, { id: "mine" }), { id: "mine", epoch: "e", offset: 7 });
    const [[url, { body, keepalive, credentials, method }]] = sent;
    assert.equal(url, "https://gateway.test/socket.io/request?namespace=notifications");
    assert.deepEqual([method, keepalive, credentials], ["POST", true, "include"]);
    assert.deepEqual(JSON.parse(body), { shop: 7, token: "t", name: "publish", body: { topic: "orders.42", data: 8, id: "mine" } });
    http = answer(403, '{"ok":false,"error":{"code":"forbidden","message":"no","retry":false}}');
    await assert.rejects(gate.publish("orders.42", 8), { code: "forbidden" });
    // A proxy has answered, perhaps after the gateway has the request.
    http = answer(504, '{"message":"upstream timed out"}');
    await assert.rejects(gate.publish("orders.42", 8, { id: "mine" }), { code: "outcome_unknown" });
    http = () => Promise.reject(new TypeError("too much"));
    await assert.rejects(gate.publish("orders.42", 8, { id: "mine" }), { code: "outcome_unknown" });
  });

  it("does not wait for the answer to such a request after a page that came back has its next connection", async () => {
    http = (_url, { signal }) => new Promise((_, reject) => signal?.addEventListener("abort", reject));
    await openWelcomed();
    page.pagehide();
    const lost = assert.rejects(gate.publish("orders.42", 8, { id: "mine" }), { code: "outcome_unknown", parts: { id: "mine", topic: "orders.42", reason: "disconnected" } });
    page.pageshow();
    await settle();
    await welcome();
    await lost;
  });

  it("does not take the late timers of a hidden page for sleep", async () => {
    const socket = await openWelcomed();
    globalThis.document.hidden = true;
    await sleep(60_000);
    assert.equal(asked(socket), 0);
  });

  it("does not wait for the next attempt when it wakes, but all pages that wake do not come at once", async () => {
    mock.method(Math, "random", () => 0.5);
    await openWelcomed({ reconnectDelayMinMs: 600_000, reconnectDelayMaxMs: 600_000 });
    sockets[0].ends();
    page.online();
    assert.equal(sockets.length, 1);
    await live(499);
    assert.equal(sockets.length, 1);
    await live(1);
    assert.deepEqual([sockets.length, gate.status], [2, "connecting"]);
    await welcome();
    sockets[1].ends();
    page.visibilitychange();
    assert.equal(sockets.length, 3);
  });

  for (const [where, end] of Object.entries({
    "of an attempt": async () => {
      http = answer(503, '{"message":"full"}', { "Retry-After": "60" });
      await open();
      await ends(0);
    },
    "of a CONNECT": async () => {
      const socket = await open();
      await begin();
      socket.says('44/notifications,{"message":"full","data":{"code":"limit_reached","message":"full","retry":true,"retry_after_s":60}}');
    },
  })) {
    it(`waits as long as the refusal says, however often the page is shown or its network comes back: ${where}`, async () => {
      await end();
      for (let nth = 0; nth < 10; nth++) {
        for (const tell of [page.visibilitychange, page.online, page.pageshow]) tell();
        await live(1000);
      }
      assert.deepEqual([sockets.length, gate.status], [1, "waiting"]);
      // A page after its return waits on.
      page.pagehide();
      await live(10_000);
      page.pageshow();
      await live(39_000);
      assert.deepEqual([sockets.length, gate.status], [1, "paused"]);
      await live(1000);
      assert.deepEqual([sockets.length, gate.status], [2, "connecting"]);
    });
  }

  it("connects at once when the application says so, whatever the gateway has said", async () => {
    http = answer(503, '{"message":"full"}', { "Retry-After": "60" });
    await open();
    await ends(0);
    gate.open();
    assert.equal(sockets.length, 2);
  });

  it("does not begin what open() has not begun, nor take back a refusal", async () => {
    await open({ autoConnect: false });
    const all = () => {
      for (const tell of Object.values(page)) tell();
    };
    all();
    assert.deepEqual([sockets.length, gate.status], [0, "idle"]);
    gate.open();
    const [socket] = sockets;
    await begin();
    socket.says('44/notifications,{"message":"no","data":{"code":"unauthorized","message":"no","retry":false}}');
    all();
    await live(2000);
    assert.deepEqual([sockets.length, gate.status], [1, "refused"]);
  });

  it("leaves no timer when it is closed", async () => {
    await openWelcomed();
    gate.close();
    const started = mock.method(globalThis, "setTimeout");
    await live(60_000);
    assert.equal(started.mock.callCount(), 0);
  });
});

describe("a class of WebSocket that throws", () => {
  for (const [what, error] of [["a page over https, a gateway over http", new DOMException("insecure", "SecurityError")], ["an address that it does not take", new SyntaxError("bad")]]) {
    it(`is a failed attempt, and nothing is left to throw later: ${what}`, async () => {
      http = answer(502, "");
      gate = connect("http://gateway.test", { WebSocket: class { constructor() { throw error; } }, reconnectDelayMinMs: 10, reconnectDelayMaxMs: 20 });
      const reported = note();
      await settle();
      await settle();
      assert.deepEqual(reported, [["unreachable", "HTTP 502", 10]]);
      http = () => Promise.reject(new TypeError("fetch failed"));
      await pass(10);
      await settle();
      assert.deepEqual(reported[1], ["unreachable", String(error), 10]);
      gate.close();
      await pass(40_000);
      assert.deepEqual([gate.status, reported.length], ["closed", 2]);
    });
  }

  it("is replaced by HTTP, where that gets through", async () => {
    http = SESSION_BEGUN;
    gate = connect("http://gateway.test", { WebSocket: class { constructor() { throw new SyntaxError("bad"); } }, transport: "websocket", reconnectDelayMinMs: 10, reconnectDelayMaxMs: 20 });
    const reported = note();
    await settle();
    await settle();
    assert.deepEqual(reported, [["unreachable", "SyntaxError: bad", 10]]);
  });

  it("in close or send ends the connection all the same", async () => {
    const socket = await openWelcomed();
    socket.send = socket.close = () => {
      throw Error("InvalidStateError");
    };
    await assert.rejects(gate.publish("a", 1), { retry: true });
    gate.close();
    assert.equal(gate.status, "closed");
  });

  it("leaves room for an error of the application's auth, which no packet can hold", async () => {
    const reported = await openNoted({ auth: { tenant: 7n } });
    await begin();
    assert.deepEqual([reported.map(([code]) => code), gate.status], [["not_serializable"], "refused"]);
  });
});

describe("the address that is dialled", () => {
  for (const [url, path, dialled] of [
    ["wss://http.example.com", "/socket.io", "wss://http.example.com/socket.io/"],
    ["ws://myhttpd.local", "/socket.io/", "ws://myhttpd.local/socket.io/"],
    ["https://example.com:8443", "/http-push/", "wss://example.com:8443/http-push/"],
    ["wss://example.com", "/http-push/", "wss://example.com/http-push/"],
    ["http://ws.example.com", "//elsewhere.test/x", "ws://ws.example.com//elsewhere.test/x/"],
    ["http://[::1]:8000", "/a b/ü", "ws://[::1]:8000/a b/ü/"],
  ]) {
    it(`is on the host that was given, and so is that of the question: ${url} ${path}`, async () => {
      let asked;
      http = (to) => {
        asked = to;
        return answer(502, "")();
      };
      gate = connect(url, { WebSocket: ScriptedSocket, path });
      note();
      await settle();
      assert.equal(sockets[0].url, `${dialled}?EIO=4&transport=websocket`);
      await ends(0);
      assert.equal(asked, `${dialled.replace(/^ws/, "http")}?EIO=4&transport=polling`);
    });
  }
});

describe("times that are longer than a timer can wait", () => {
  const LONGEST_MS = 2 ** 31 - 1;

  it("do not make an answer late, nor an attempt early", async () => {
    const started = mock.method(globalThis, "setTimeout");
    const socket = await open({ requestTimeoutMs: LONGEST_MS, connectTimeoutMs: LONGEST_MS, reconnectDelayMinMs: LONGEST_MS, reconnectDelayMaxMs: LONGEST_MS });
    socket.says(`0${JSON.stringify({ ...SESSION, pingInterval: 1e300, pingTimeout: 1e300 })}`);
    await settle();
    socket.says('40/notifications,{"sid":"y"}');
    const body = { session: "s", epoch: "e", offset: 100, resumed: null, limits: { inbound_per_s: 1e-9, inbound_burst: 1 }, subscriptions: [] };
    socket.says(`42/notifications,${JSON.stringify(["welcome", body])}`);
    await settle();
    gate.subscribe("a", () => {});
    gate.subscribe("b", () => {});
    void gate.publish("c", 1).catch(() => {});
    await settle();
    assert.equal(gate.status, "live");
    socket.says('42/notifications,["status",{"moving":{"reason":"restart","within_s":1e300}}]');
    await settle();
    socket.ends();
    await settle();
    const delays = started.mock.calls.map(({ arguments: [, delayMs] }) => delayMs);
    assert.deepEqual(delays.filter((delayMs) => !(delayMs >= 0 && delayMs <= LONGEST_MS)), []);
    assert.ok(delays.filter((delayMs) => delayMs === LONGEST_MS).length >= 3, String(delays));
  });

  it("are cut in one place: no other file starts a timer whose time comes from outside", async () => {
    const fixed = /setTimeout\([^,]*, ([A-Z_]+|pingMs\(\)|waitMs|delayMs)(, nowMs)?\)|setTimeout\(act\)/;
    const folder = new URL("../../src/", import.meta.url);
    const names = (await readdir(folder, { recursive: true })).filter((name) => name.endsWith(".js") && name !== "base/timer.js");
    const texts = await Promise.all(names.map(async (name) => [name, await readFile(new URL(name, folder), "utf8")]));
    const starts = texts.flatMap(([name, text]) => text.split("\n").filter((line) => line.includes("setTimeout(") && !fixed.test(line)).map((line) => `${name}: ${line.trim()}`));
    assert.deepEqual(starts, []);
    // These two are bounded where they are made.
    assert.deepEqual(texts.filter(([, text]) => /setTimeout\([^,]*, (waitMs|delayMs)\)/.test(text)).map(([name]) => name).sort(), ["offline/outbox.js"]);
  });
});
