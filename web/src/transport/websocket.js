/**
 * The transport by a plain WebSocket: Socket.IO 5 over Engine.IO 4, as far as Headgate uses it, without a library.
 *
 * In: messages of the socket. Out: calls of the owner (transport.js has the promises). It answers the gateway's pings. The connection is lost when nothing
 * has come for longer than the ping interval and the ping timeout. A message of another protocol, also a binary one, ends the connection, because
 * skipping it could lose an event without notice.
 *
 * Browsers do not reveal to a page why a WebSocket could not be opened. So the client asks the same address over HTTP. A refusal has the reason and the
 * time to retry. If the gateway begins a session over HTTP, something between the two blocks WebSockets.
 *
 * @import { Transport, TransportOptions, TransportOwner } from "./transport.js"
 * @typedef {"closed" | "opening" | "joining" | "joined"} WebSocketState
 * @typedef {"dial" | "open" | "join" | "close"} Step
 */
import { Machine } from "../base/machine.js";
import { startTimer } from "../base/timer.js";
import { disconnected } from "../language/errors.js";
import { checkSize } from "../language/payload.js";
import { PROBE_MS } from "../language/protocol.js";
import { endpointOf } from "./address.js";
import { createPackets, PING, PONG } from "./packets.js";
import { bodyOf, reasonOf, unanswered } from "./reason.js";

/**
 * `dial`: a socket is made · `open`: the gateway has begun a session · `join`: it has admitted the client to the namespace · `close`: the socket was
 * left or lost.
 * @type {Record<WebSocketState, Partial<Record<Step, WebSocketState>>>}
 */
export const WEBSOCKET = {
  closed: { dial: "opening" },
  opening: { open: "joining", close: "closed" },
  joining: { join: "joined", close: "closed" },
  joined: { close: "closed" },
};

const PARSE_ERROR = "parse error";
/** When the time is over, a page that slept or was busy may have unread messages. It gets this long to read them. */
const GRACE_MS = 1000;
/** Share of an attempt's time in which the gateway must begin a session. The rest is for the request over HTTP and for the fallback. */
const OPENING_SHARE = 0.5;
/** The query of Engine.IO's endpoint. */
const QUERY = "?EIO=4&transport=";

/**
 * @param {string} address origin and namespace
 * @param {TransportOptions} options with `WebSocket`
 * @param {TransportOwner & { blocked?: () => void }} owner `blocked` is called instead of `lost` if HTTP gets through and a WebSocket does not
 * @returns {Transport}
 */
export function createWebSocket(address, { WebSocket, path = "", connectTimeoutMs = 0 }, owner) {
  const packets = createPackets(new URL(address).pathname);
  const polling = endpointOf(address, path, `${QUERY}polling`);
  const life = new Machine(WEBSOCKET, "closed");
  /** The present one. */
  let socket = /** @type {globalThis.WebSocket | undefined} */ (undefined);
  /** The one on which a CONNECT was sent. */
  let greeted = socket;
  /** Aborts the request over HTTP. */
  let asking = new AbortController();
  /** Requests that wait for their acknowledgement. @type {Map<number | undefined, (reply?: any) => void>} */
  const requests = new Map();
  let nth = 0;
  /** How many WebSockets in a row may end before the gateway has admitted the client, until HTTP is used. If one has worked before, it is two. */
  let chances = 1;
  /** The longest message that the gateway accepts. */
  let maxPayload = Infinity;
  /** The longest silence of a reachable gateway. */
  let silenceMs = 0;
  /** When the next message must have come. */
  let dueMs = 0;
  /** Whether that time is over, and the grace time runs. */
  let doubted = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} the end of opening, or of the silence */
  let timer;

  // The steps up: dial, open, join.

  function dial() {
    life.take("dial");
    /** @type {globalThis.WebSocket} */
    let mine;
    try {
      mine = new WebSocket(endpointOf(address.replace("http", "ws"), path, `${QUERY}websocket`));
    } catch (error) {
      // The constructor throws for a gateway over http in a page over https, or by a Content-Security-Policy.
      socket = undefined;
      return lost(String(error));
    }
    socket = mine;
    timer = startTimer(() => lost("timeout"), connectTimeoutMs * OPENING_SHARE);
    mine.onmessage = (/** @type {MessageEvent} */ { data }) => mine === socket && !life.is("closed") && heard(data);
    // In Chromium no `close` follows the error if a Content-Security-Policy forbids the address. In Node an error has a message.
    mine.onerror = mine.onclose = (/** @type {any} */ { message, code, reason }) => {
      if (mine !== socket || life.is("closed")) return;
      lost(life.is("joined") ? `transport close${reason ? `: ${code} ${reason}` : ""}` : reason || message || "websocket error");
    };
  }

  /** @param {any} text */
  function heard(text) {
    dueMs = performance.now() + silenceMs;
    let packet;
    try {
      packet = packets.read(text);
    } catch {
      return lost(PARSE_ERROR);
    }
    const { kind, data, id } = packet;
    if (kind === "event") {
      if (life.is("joined")) owner.arrived(data[0], data.slice(1));
    } else if (kind === "ping") send(PONG);
    else if (kind === "acknowledge") requests.get(id)?.(data[0]);
    // If no CONNECT was sent on this socket, because the page waits for its token, the gateway was reached all the same.
    else if (kind === "close" || kind === "leave") lost("io server disconnect", life.is("joined") || greeted !== socket);
    else if (kind === "refuse" && life.is("joining")) {
      leave();
      owner.refused({ message: data.message, ...data.data });
    } else if (kind === "open" && life.offer("open")) opened(data);
    else if (kind === "join" && life.offer("join")) chances = 2;
    else if (kind) lost(PARSE_ERROR);
  }

  /** @param {{ pingInterval: number, pingTimeout: number, maxPayload: number }} session */
  function opened({ pingInterval, pingTimeout, ...session }) {
    ({ maxPayload } = session);
    silenceMs = pingInterval + pingTimeout;
    if (!(silenceMs > 0)) return lost(PARSE_ERROR);
    listen(silenceMs);
    const mine = socket;
    owner.greet((auth) => {
      if (mine !== socket || !life.is("joining")) return;
      greeted = mine;
      send(packets.connect(auth));
    });
  }

  /** Expect a message in this time. @param {number} ms */
  function listen(ms) {
    dueMs = performance.now() + ms;
    clearTimeout(timer);
    doubted = false;
    watch();
  }

  /** End the connection after too long a silence. */
  function watch() {
    const leftMs = dueMs - performance.now();
    if (leftMs <= 0 && doubted) return lost("ping timeout");
    doubted = leftMs <= 0;
    timer = startTimer(watch, doubted ? GRACE_MS : leftMs);
  }

  // The steps down: lost, which calls leave.

  /** @param {string} trouble @param {boolean} [isReached] whether a WebSocket gets through */
  async function lost(trouble, isReached = life.is("joined")) {
    leave();
    if (isReached) return owner.lost(trouble);
    // A proxy may accept a WebSocket and pass none of its messages, in one or both directions.
    const { signal } = asking;
    const { reason = trouble, retryAfterS, answers, error } = await why(signal, trouble);
    if (signal.aborted) return;
    if (error) owner.refused(error);
    else if (answers && owner.blocked && --chances < 1) owner.blocked();
    else owner.lost(reason, retryAfterS);
  }

  /**
   * Ask over HTTP.
   * @param {AbortSignal} signal @param {string} trouble of the WebSocket
   * @returns {Promise<{ reason?: string, retryAfterS?: number, answers?: boolean, error?: any }>}
   */
  async function why(signal, trouble) {
    let answer;
    let text;
    try {
      // A cache could answer with another client's session.
      answer = await fetch(polling, { signal, cache: "no-store", redirect: "manual" });
      text = await answer.text();
    } catch {
      // No server, or an answer that this page may not read.
      return { reason: unanswered(address, trouble) };
    }
    const { sid } = bodyOf(text.slice(1));
    if (sid) {
      // End the session that this request has begun.
      void fetch(`${polling}&sid=${encodeURIComponent(sid)}`, { method: "POST", body: "1", cache: "no-store" }).catch(() => {});
      return { answers: true };
    }
    // A refusal, or the answer of another server, such as a development server's page for any path, or an application's sign-in page.
    return reasonOf(answer.status, text, answer.headers.get("Retry-After"));
  }

  /** Leave the socket. Nothing that comes from it counts after this. */
  function leave() {
    asking.abort();
    asking = new AbortController();
    if (!life.offer("close")) return;
    clearTimeout(timer);
    try {
      socket?.close();
    } catch {
      // The application's class has thrown. Its further events are ignored.
    }
    for (const settle of requests.values()) settle();
  }

  /** Send a text. A socket that cannot send is closed and reports that itself. @param {string} text */
  function send(text) {
    try {
      socket?.send(text);
    } catch {}
  }

  return {
    connect: dial,
    // Without a DISCONNECT, so that the gateway keeps the page's place in presence until it is back.
    disconnect: leave,

    close() {
      if (life.is("joined")) send(packets.disconnect);
      leave();
    },

    probe() {
      // The gateway answers a ping. Any other message is a sign of life too.
      if (!life.is("joined")) return;
      send(PING);
      listen(Math.min(PROBE_MS, dueMs - performance.now()));
    },

    request: (name, body, timeoutMs) =>
      new Promise((resolve, reject) => {
        const id = nth++;
        const text = packets.request(id, name, body);
        checkSize(text, maxPayload);
        /** @param {any} [reply] */
        const settle = (reply) => {
          requests.delete(id);
          clearTimeout(deadline);
          if (reply) resolve(reply);
          else reject(Error("no answer"));
        };
        const deadline = startTimer(settle, timeoutMs);
        requests.set(id, settle);
        try {
          socket?.send(text);
        } catch {
          // The request was not sent.
          reject(disconnected());
          settle();
        }
      }),
  };
}
