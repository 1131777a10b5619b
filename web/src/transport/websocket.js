/**
 * The transport by a plain WebSocket: Socket.IO 5 over Engine.IO 4, as far as Headgate uses it, without a library.
 *
 * In: messages of the socket. Out: calls of the owner (transport.js has the promises). It answers the gateway's pings, and takes a
 * gateway from which nothing has come for longer than a ping and its time allow for lost. A message of another protocol,
 * binary ones included, ends the connection: passing over one could lose an event without a word.
 *
 * A page may not know why a WebSocket could not be opened. So the same address is asked over HTTP: a refusal has the reason and when to
 * come again; a gateway that lets a session begin there means that something on the way takes no WebSockets.
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
 * `dial`: a socket is made · `open`: the gateway has begun a session · `join`: it has let the client into the namespace ·
 * `close`: the socket was left or lost.
 * @type {Record<WebSocketState, Partial<Record<Step, WebSocketState>>>}
 */
export const WEBSOCKET = {
  closed: { dial: "opening" },
  opening: { open: "joining", close: "closed" },
  joining: { join: "joined", close: "closed" },
  joined: { close: "closed" },
};

const PARSE_ERROR = "parse error";
/** A page that slept or was busy may have messages waiting when the time is over: they get this long to have their turn. */
const GRACE_MS = 1000;
/** Part of the time for an attempt in which the gateway must begin a session: the rest is for asking why, and for another way. */
const OPENING_SHARE = 0.5;
/** Of the endpoint: Engine.IO's. */
const QUERY = "?EIO=4&transport=";

/**
 * @param {string} address origin and namespace
 * @param {TransportOptions} options with `WebSocket`
 * @param {TransportOwner & { blocked?: () => void }} owner `blocked`: HTTP gets through and a WebSocket does not; called in place of `lost`
 * @returns {Transport}
 */
export function createWebSocket(address, { WebSocket, path = "", connectTimeoutMs = 0 }, owner) {
  const packets = createPackets(new URL(address).pathname);
  const polling = endpointOf(address, path, `${QUERY}polling`);
  const life = new Machine(WEBSOCKET, "closed");
  /** The present one, and the way to give up asking why there is none. */
  let socket = /** @type {globalThis.WebSocket | undefined} */ (undefined);
  /** The one on which a CONNECT was sent. */
  let greeted = socket;
  let asking = new AbortController();
  /** Requests that wait for their acknowledgement. @type {Map<number | undefined, (reply?: any) => void>} */
  const requests = new Map();
  let nth = 0;
  /** How many WebSockets in a row may end before the client is let in, until HTTP is tried: one that had worked gets another chance. */
  let chances = 1;
  /** The gateway's limits: the longest message that it takes, the longest silence that it keeps. */
  let maxPayload = Infinity;
  let silenceMs = 0;
  /** When the next message must have come. */
  let dueMs = 0;
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
      // A page over https and a gateway over http; a Content-Security-Policy.
      socket = undefined;
      return lost(String(error));
    }
    socket = mine;
    timer = startTimer(() => lost("timeout"), connectTimeoutMs * OPENING_SHARE);
    mine.onmessage = (/** @type {MessageEvent} */ { data }) => mine === socket && !life.is("closed") && heard(data);
    // In Chromium no `close` follows an error where a Content-Security-Policy forbids the address. In Node an error has a message.
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
    // A gateway that has waited in vain for a CONNECT, as the page for its token, was reached.
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

  /** Something must come in this time. @param {number} ms */
  function listen(ms) {
    dueMs = performance.now() + ms;
    clearTimeout(timer);
    doubted = false;
    watch();
  }

  /** Watch for too long a silence. */
  function watch() {
    const leftMs = dueMs - performance.now();
    if (leftMs <= 0 && doubted) return lost("ping timeout");
    doubted = leftMs <= 0;
    timer = startTimer(watch, doubted ? GRACE_MS : leftMs);
  }

  // The steps down: lost leaves.

  /** @param {string} trouble @param {boolean} [isReached] a WebSocket gets through */
  async function lost(trouble, isReached = life.is("joined")) {
    leave();
    if (isReached) return owner.lost(trouble);
    // Something on the way may take a WebSocket, and no message of it, or none of the page.
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
      // Nobody there, or an answer that this page may not read.
      return { reason: unanswered(address, trouble) };
    }
    const { sid } = bodyOf(text.slice(1));
    if (sid) {
      // It has begun a session that stays unused.
      void fetch(`${polling}&sid=${encodeURIComponent(sid)}`, { method: "POST", body: "1", cache: "no-store" }).catch(() => {});
      return { answers: true };
    }
    // A refusal, or what is not a gateway's: a development server's page for any path, an application's sign-in page.
    return reasonOf(answer.status, text, answer.headers.get("Retry-After"));
  }

  /** Nothing of the socket counts any more. */
  function leave() {
    asking.abort();
    asking = new AbortController();
    if (!life.offer("close")) return;
    clearTimeout(timer);
    try {
      socket?.close();
    } catch {
      // A class of the application's: its further events are ignored.
    }
    for (const settle of requests.values()) settle();
  }

  function disconnect() {
    if (life.is("joined")) send(packets.disconnect);
    leave();
  }

  /** A socket that cannot send is closed, and reports it itself. @param {string} text */
  function send(text) {
    try {
      socket?.send(text);
    } catch {}
  }

  return {
    connect: dial,
    disconnect,
    close: disconnect,

    probe() {
      // The gateway answers a ping, and anything else that comes is a sign of life too.
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
          // It has not been sent.
          reject(disconnected());
          settle();
        }
      }),
  };
}
