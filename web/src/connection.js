/**
 * The connection: one Socket.IO client of our own, kept up. The only file that meets socket.io-client's objects.
 *
 * In: `open`, `request`, `close` from the gate. Out: calls of the `owner` below. It makes each CONNECT's auth from the
 * owner's present state, waits for the gateway's `welcome` before it calls itself up, reconnects with full jitter
 * (socket.io-client's own reconnection is off: it has no full jitter and knows nothing of refusals, drains and frozen
 * pages), and refreshes the token. `close` leaves no timer and no listener behind.
 *
 * @import { Socket } from "socket.io-client"
 * @import { Position, Status, SubscribeRequest, Welcome } from "./protocol.js"
 * @import { TokenSource } from "./token.js"
 *
 * @typedef {"connecting" | "up" | "waiting" | "refused" | "paused" | "closed"} ConnectionState
 *
 * @typedef {object} ConnectionOptions
 * @property {any} io socket.io-client's `io`
 * @property {Record<string, any>} socketOptions for socket.io-client
 * @property {TokenSource} [token]
 * @property {number} reconnectDelayMinMs
 * @property {number} reconnectDelayMaxMs
 * @property {number} connectTimeoutMs from the attempt to the welcome
 * @property {number} requestTimeoutMs
 *
 * @typedef {object} ConnectionOwner
 * @property {() => Promise<{ resume?: Position, subscriptions: SubscribeRequest[], [name: string]: any }>} greeting
 * @property {(name: string, args: any[], isCurrent: () => boolean) => void} received each message, in order, welcome included
 * @property {(reason: string, delayMs: number | null) => void} wentDown was up; null: will not reconnect by itself
 * @property {(error: HeadgateError, delayMs: number | null) => void} wasRefused
 * @property {() => void} changed
 * @property {() => () => void} refreshing another token is asked for; what is returned is called when it is in force
 */
import { reconnectDelayMs } from "./backoff.js";
import { closed, disconnected, HeadgateError } from "./errors.js";
import { REFRESH } from "./protocol.js";
import { currentToken, refreshDelayMs } from "./token.js";

/** Refusals in a row after which a client whose token may change stops asking. */
const MAX_REFUSALS = 5;

export class Connection {
  /** @type {ConnectionState} */
  state = "waiting";
  #options;
  #owner;
  #attempt = 0;
  #refusals = 0;
  /** Rises with every attempt: what belongs to an older one is stale. */
  #generation = 0;
  /** @type {string | undefined} */
  #token;
  /** @type {ReturnType<typeof setTimeout> | undefined} next attempt, or the deadline of the present one */
  #timer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #refreshTimer;
  /** @type {Socket} */
  #socket;

  /** @param {string} address origin and namespace @param {ConnectionOptions} options @param {ConnectionOwner} owner */
  constructor(address, options, owner) {
    this.#options = options;
    this.#owner = owner;
    this.#socket = options.io(address, {
      transports: ["websocket", "polling"],
      tryAllTransports: true,
      ...options.socketOptions,
      auth: (/** @type {(auth: object) => void} */ send) => void this.#greet(send),
      autoConnect: false,
      forceNew: true,
      reconnection: false,
    });
    this.#socket.onAny((name, ...args) => {
      const generation = this.#generation;
      owner.received(name, args, () => generation === this.#generation);
    });
    this.#socket.on("disconnect", (reason) => this.#lost(reason));
    this.#socket.on("connect_error", (error) => this.#failed(error));
  }

  /** Connect now, unless that is under way or done. After a refusal, a pause or a wait it starts afresh. */
  open() {
    if (this.state === "closed" || this.state === "connecting" || this.state === "up") return;
    this.#attempt = this.#refusals = 0;
    this.#connect();
  }

  /** Connect now if waiting for the next attempt; a refusal stands. */
  wake() {
    if (this.state === "waiting" || this.state === "paused") this.open();
  }

  /** Disconnect until `wake` or `open`. */
  pause() {
    if (this.state !== "refused" && this.state !== "closed") this.#leave("paused", "paused");
  }

  /**
   * Leave this connection and make another, which resumes.
   * @param {string} reason
   * @param {number} [inMs] how long to stay on this one; else it is left at once, and the next made after a back-off
   */
  renew(reason, inMs) {
    if (this.state !== "up") return;
    clearTimeout(this.#timer);
    if (inMs === undefined) this.#leave("waiting", reason, this.#delayMs());
    else this.#timer = setTimeout(() => this.#leave("waiting", reason, 0), inMs);
  }

  /** The gateway has let us in: called by the owner when `welcome` has its turn. */
  welcomed() {
    clearTimeout(this.#timer);
    this.#attempt = this.#refusals = 0;
    this.#scheduleRefresh();
    this.#become("up");
  }

  /**
   * Send a request and return its acknowledgement.
   * @param {string} name
   * @param {object} body
   * @returns {Promise<any>} rejected with HeadgateError: the gateway's refusal, `timeout`, `disconnected`
   */
  request(name, body) {
    if (this.state === "closed") return Promise.reject(closed());
    if (this.state !== "up") return Promise.reject(disconnected());
    return new Promise((resolve, reject) => {
      this.#socket.timeout(this.#options.requestTimeoutMs).emit(name, body, (/** @type {any} */ late, /** @type {any} */ reply) => {
        if (reply?.ok) resolve(reply);
        else if (reply) reject(HeadgateError.fromWire(reply.error));
        else if (this.state === "up") reject(new HeadgateError("timeout", `no acknowledgement of ${name}`, {}, true));
        else reject(disconnected(late?.message));
      });
    });
  }

  /**
   * Put another token in force on the live connection.
   * @param {string} [token] else the source is asked
   */
  async refresh(token) {
    clearTimeout(this.#refreshTimer);
    const fresh = token ?? (await currentToken(this.#options.token));
    const refreshed = this.#owner.refreshing();
    await this.request(REFRESH, { token: fresh });
    this.#token = fresh;
    this.#scheduleRefresh();
    refreshed();
  }

  close() {
    if (this.state === "closed") return;
    this.#leave("closed", "closed");
    this.#socket.off();
    this.#socket.offAny();
  }

  #connect() {
    this.#generation++;
    this.#become("connecting");
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#failed(new Error("no welcome in time")), this.#options.connectTimeoutMs);
    this.#socket.connect();
  }

  /** @param {(auth: object) => void} send */
  async #greet(send) {
    const generation = this.#generation;
    try {
      const token = await currentToken(this.#options.token);
      const greeting = await this.#owner.greeting();
      if (generation !== this.#generation) return;
      this.#token = token;
      send({ ...greeting, ...(token === undefined ? {} : { token }) });
    } catch (error) {
      if (generation === this.#generation) this.#refused(new HeadgateError("token_unavailable", String(error), {}, true));
    }
  }

  /** The socket was connected and is not any more. @param {string} reason */
  #lost(reason) {
    if (this.state === "up") this.#leave("waiting", reason, this.#delayMs());
    else if (this.state === "connecting") this.#failed(new Error(reason));
  }

  /** An attempt came to nothing. @param {any} error */
  #failed(error) {
    if (this.state !== "connecting") return;
    // Only a refusal by the namespace carries `data`; anything else is the network, or a gateway that is not ready.
    if ("data" in error) this.#refused(HeadgateError.fromWire(error.data, error.message));
    else this.#leave("waiting", error.message, this.#delayMs());
  }

  /** @param {HeadgateError} refusal */
  #refused(refusal) {
    const mayChange = typeof this.#options.token === "function" && ++this.#refusals < MAX_REFUSALS;
    const delayMs = refusal.retry || mayChange ? this.#delayMs() : null;
    this.#leave(delayMs === null ? "refused" : "waiting", refusal.message, delayMs);
    this.#owner.wasRefused(refusal, delayMs);
  }

  /**
   * Leave the present connection or attempt.
   * @param {ConnectionState} state
   * @param {string} reason
   * @param {number | null} [delayMs] until the next attempt
   */
  #leave(state, reason, delayMs = null) {
    const wasUp = this.state === "up";
    this.#generation++;
    clearTimeout(this.#timer);
    clearTimeout(this.#refreshTimer);
    this.state = state;
    this.#socket.disconnect();
    // Nothing may be sent twice, or to a connection that was not asked for it.
    this.#socket.sendBuffer = [];
    if (delayMs !== null) this.#timer = setTimeout(() => this.#connect(), delayMs);
    if (wasUp) this.#owner.wentDown(reason, delayMs);
    this.#owner.changed();
  }

  #delayMs() {
    return reconnectDelayMs(this.#attempt++, this.#options.reconnectDelayMinMs, this.#options.reconnectDelayMaxMs);
  }

  #scheduleRefresh() {
    clearTimeout(this.#refreshTimer);
    const delayMs = typeof this.#options.token === "function" ? refreshDelayMs(this.#token, Date.now()) : null;
    if (delayMs !== null) this.#refreshTimer = setTimeout(() => this.#tryRefresh(0), delayMs);
  }

  /** @param {number} attempt When none succeeds, or the gateway will have none, the token expires, the gateway disconnects, and CONNECT brings a new one. */
  #tryRefresh(attempt) {
    const generation = this.#generation;
    this.refresh().catch((error) => {
      if (generation !== this.#generation || error.retry === false) return;
      this.#refreshTimer = setTimeout(() => this.#tryRefresh(attempt + 1), reconnectDelayMs(attempt, 1000, 60_000));
    });
  }

  /** @param {ConnectionState} state */
  #become(state) {
    this.state = state;
    this.#owner.changed();
  }
}
