/**
 * The connection: one Socket.IO client of our own, kept up. The only file that meets socket.io-client's objects.
 *
 * In: `open`, `request`, `close` from the gate. Out: calls of the `owner` below. It makes each CONNECT's auth from the
 * owner's present state, waits for the gateway's `welcome` before it calls itself up, reconnects with full jitter
 * (socket.io-client's own reconnection is off: it has no full jitter and knows nothing of refusals, drains and frozen
 * pages), and refreshes the token. `close` leaves no timer and no listener behind.
 *
 * @import { Socket } from "socket.io-client"
 * @import { TokenSource } from "./token.js"
 *
 * @typedef {"connecting" | "up" | "waiting" | "refused" | "paused" | "closed"} ConnectionState
 *
 * @typedef {object} ConnectionOptions
 * @property {any} [io] another socket.io-client
 * @property {string} [path] of the Socket.IO endpoint, default `/socket.io`
 * @property {("websocket" | "polling")[]} [transports] default WebSocket, then long-polling
 * @property {Record<string, any>} [socketOptions] anything else for socket.io-client
 * @property {TokenSource} [token] a value, or a function (may be async) that is asked at each connect and before expiry
 * @property {number} [reconnectDelayMinMs] default 500
 * @property {number} [reconnectDelayMaxMs] default 20000
 * @property {number} [connectTimeoutMs] default 20000, from the attempt to the welcome
 * @property {number} [requestTimeoutMs] default 10000
 *
 * @typedef {object} ConnectionOwner
 * @property {() => object} _greeting the CONNECT's auth object, but for the token
 * @property {(generation: number, name: string, args: any[]) => void} _received each message, in order, welcome included
 * @property {(name: string, ...args: any[]) => void} _tell a lifecycle event
 * @property {() => void} _down what was up is not any more
 * @property {() => void} _changed
 * @property {() => Promise<void>} _refresh it is time for another token
 */
import { io as socketIo } from "socket.io-client";
import { reconnectDelayMs } from "./backoff.js";
import { disconnected, fromWire, HeadgateError } from "./errors.js";
import { REFRESH } from "./protocol.js";
import { refreshDelayMs } from "./token.js";

/** Refusals in a row after which a client whose token may change stops asking. */
const MAX_REFUSALS = 5;

/** @param {string} address origin and namespace @param {ConnectionOptions} options @param {ConnectionOwner} owner */
export function createConnection(
  address,
  {
    io = socketIo,
    path,
    transports = ["websocket", "polling"],
    socketOptions,
    token: source,
    reconnectDelayMinMs = 500,
    reconnectDelayMaxMs = 20_000,
    connectTimeoutMs = 20_000,
    requestTimeoutMs = 10_000,
  },
  owner,
) {
  /** @type {ConnectionState} */
  let state = "waiting";
  let attempt = 0;
  let refusals = 0;
  /** Rises with every attempt: what belongs to an older one is stale. */
  let generation = 0;
  /** @type {string | null | undefined} */
  let token;
  /** @type {ReturnType<typeof setTimeout> | undefined} next attempt, or the deadline of the present one */
  let timer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let refreshTimer;
  const mayChange = typeof source === "function";
  const currentToken = async () => (mayChange ? source() : source);

  /** @type {Socket} */
  const socket = io(address, {
    path,
    transports,
    tryAllTransports: true,
    ...socketOptions,
    auth: greet,
    autoConnect: false,
    forceNew: true,
    reconnection: false,
  });
  socket.onAny((name, ...args) => owner._received(generation, name, args));
  socket.on("disconnect", lost);
  socket.on("connect_error", failed);

  /** @param {ConnectionState} next */
  function become(next) {
    state = next;
    owner._changed();
  }

  /** @param {() => void} act @param {number} delayMs */
  function after(act, delayMs) {
    clearTimeout(timer);
    timer = setTimeout(act, delayMs);
  }

  function connect() {
    generation++;
    become("connecting");
    after(() => lost("timeout"), connectTimeoutMs);
    socket.connect();
  }

  /** @param {(auth: object) => void} send */
  async function greet(send) {
    const mine = generation;
    try {
      const fresh = await currentToken();
      if (mine !== generation) return;
      token = fresh;
      send({ ...owner._greeting(), token });
    } catch (error) {
      if (mine === generation) refused(new HeadgateError("token_unavailable", { reason: error }, true));
    }
  }

  /** The connection, or an attempt at one, came to nothing. @param {string} reason */
  function lost(reason) {
    if (state === "up") leave(reason, nextDelayMs());
    if (state === "connecting") refused(new HeadgateError("unreachable", { url: address, reason }, true));
  }

  /** @param {any} error */
  function failed(error) {
    // Only a refusal by the namespace carries `data`; anything else is the network, or a gateway that is not ready.
    if (state === "connecting" && "data" in error) refused(fromWire({ message: error.message, ...error.data }));
    else lost(error.message);
  }

  /** @param {HeadgateError} refusal */
  function refused(refusal) {
    const delayMs = refusal.retry || (mayChange && ++refusals < MAX_REFUSALS) ? nextDelayMs() : null;
    leave(refusal.message, delayMs, delayMs === null ? "refused" : "waiting");
    owner._tell("connection:refused", refusal, { delay_ms: delayMs });
  }

  /**
   * Leave the present connection or attempt.
   * @param {string} reason
   * @param {number | null} delayMs until the next attempt
   * @param {ConnectionState} [next]
   */
  function leave(reason, delayMs, next = "waiting") {
    const wasUp = state === "up";
    generation++;
    clearTimeout(timer);
    clearTimeout(refreshTimer);
    state = next;
    socket.disconnect();
    // Nothing may be sent twice, or to a connection that was not asked for it.
    socket.sendBuffer = [];
    if (delayMs !== null) after(connect, delayMs);
    if (wasUp) {
      owner._down();
      owner._tell("connection:down", { reason, delay_ms: delayMs });
    }
    owner._changed();
  }

  function nextDelayMs() {
    return reconnectDelayMs(attempt++, reconnectDelayMinMs, reconnectDelayMaxMs);
  }

  /** Connect now, unless that is under way or done. After a refusal, a pause or a wait it starts afresh. */
  function open() {
    if (state === "closed" || state === "connecting" || state === "up") return;
    attempt = refusals = 0;
    connect();
  }

  /**
   * Send a request and return its acknowledgement.
   * @param {string} name
   * @param {object} body
   * @returns {Promise<any>} rejected with HeadgateError: the gateway's refusal, `timeout`, `disconnected`
   */
  async function request(name, body) {
    if (state === "closed") throw new HeadgateError("closed");
    if (state !== "up") throw disconnected();
    let answer;
    try {
      answer = await socket.timeout(requestTimeoutMs).emitWithAck(name, body);
    } catch {
      throw state === "up" ? new HeadgateError("timeout", { request: name }, true) : disconnected();
    }
    const { error, ok, ...reply } = answer;
    if (error) throw fromWire(error);
    return reply;
  }

  function scheduleRefresh() {
    if (mayChange) refreshIn(refreshDelayMs(token, Date.now()));
  }

  /**
   * When none succeeds, or the gateway will have none, the token expires, the gateway disconnects, and CONNECT brings a new one.
   * @param {number | null} delayMs @param {number} [failures]
   */
  function refreshIn(delayMs, failures = 0) {
    const mine = generation;
    const again = (/** @type {any} */ { retry }) => {
      if (mine === generation && retry !== false) refreshIn(reconnectDelayMs(failures, 1000, 60_000), failures + 1);
    };
    clearTimeout(refreshTimer);
    if (delayMs) refreshTimer = setTimeout(() => owner._refresh().catch(again), delayMs);
  }

  return {
    _state: () => state,

    /** Return the number of the present attempt, the one that `received` says. */
    _generation: () => generation,

    _open: open,

    /** Connect now if waiting for the next attempt; a refusal stands, and nothing begins that `open` has not begun. */
    _wake() {
      if (generation && state !== "refused") open();
    },

    /** Disconnect until `wake` or `open`. */
    _pause() {
      if (generation && state !== "refused") leave("paused", null, "paused");
    },

    /**
     * Leave this connection and make another, which resumes.
     * @param {string} reason
     * @param {number} [inMs] how long to stay on this one; else it is left at once, and the next made after a back-off
     */
    _renew(reason, inMs) {
      if (state !== "up") return;
      if (inMs === undefined) lost(reason);
      else after(() => leave(reason, 0), inMs);
    },

    /** The gateway has let us in: called by the owner when `welcome` has its turn. */
    _welcomed() {
      clearTimeout(timer);
      attempt = refusals = 0;
      scheduleRefresh();
      become("up");
    },

    _request: request,

    _currentToken: currentToken,

    /** Put another token in force on the live connection. @param {string | null | undefined} fresh */
    async _refresh(fresh) {
      clearTimeout(refreshTimer);
      await request(REFRESH, { token: fresh });
      token = fresh;
      scheduleRefresh();
    },

    /** Disconnect for good. */
    _close() {
      leave("closed", null, "closed");
      socket.off().offAny();
    },
  };
}
