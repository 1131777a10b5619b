/**
 * The gate: a dispatcher that subscribes its topics and patterns at the gateway. `connect` returns one.
 *
 * In: handlers of the application. Out: handler calls, and lifecycle events, whose names have a colon. session/ exchanges messages with the gateway.
 *
 * Lifecycle events: `connection:up` {session, user, resumed, epoch, offset, limits, …} · `connection:down` {reason, delayMs} ·
 * `connection:refused` HeadgateError (refused, no token, or `unreachable`), {delayMs} · `connection:unauthorized` HeadgateError (the gateway disconnects
 * this client because its token has expired or was revoked) · `connection:moving` {reason, withinS} · `delivery:gap` {patterns, from, to, count, bytes,
 * reason, recoverable, repairing, lost} · `delivery:backpressure` {state, queued, queuedBytes, discarded, conflated, where} · `delivery:resumed` {epoch,
 * offset, repaired?: {patterns, from, to, count}} · `delivery:error` {error, pattern?, topic?} · `status:change` {status, previous, reason}, for each
 * change · `state:change` state. An outbox (offline/outbox.js) reports `publish:queued`, `publish:receipt` and `publish:refused`.
 *
 * A gap is `repairing` while the client fetches its events from the log. They come late, marked `replayed`, and `delivery:resumed` reports the end. A gap is
 * `lost` if its events will not come; then the client calls `resync` once. If it is neither, the subscription has `repair: false`, and `gate.replay` can
 * fetch the events.
 *
 * @import { EventCallback } from "./dispatcher.js"
 * @import { EventMeta, Overflow, Since } from "./language/protocol.js"
 * @import { SessionOptions, State } from "./session/session.js"
 *
 * @typedef {object} HeadgateEvent the second argument of a handler
 * @property {string} topic
 * @property {any} data
 * @property {string | null} id
 * @property {number} time milliseconds since 1970, by the clock of Redis
 * @property {number | null} offset null: the event is not in the log and comes only live
 * @property {boolean} replayed
 * @property {string} [traceparent] of the span that published it (W3C Trace Context)
 * @property {string} [by] the user who published it, taken from the token, in topics of HEADGATE_EVENT_BY
 * @property {string} pattern of the handler that was called
 *
 * @typedef {{ overflow?: Overflow, repair?: boolean, since?: Since, signal?: AbortSignal }} SubscribeOptions
 * @typedef {{ epoch: string, offset: number, duplicate?: boolean }} Receipt
 * @typedef {{ pattern: string, status: import("./subscriptions/subscription.js").SubscriptionState, ready: Promise<void>, close: () => void, [Symbol.dispose]: () => void }} Subscription
 */
import { Dispatcher, isTopic } from "./dispatcher.js";
import { disconnected } from "./language/errors.js";
import { checkArgument, checkOptions, checkRule, CONNECT, GATE, HANDLER, PUBLISH as PUBLISH_OPTIONS, RANGE, SUBSCRIBE, TEXTS } from "./language/options.js";
import { explainMethods, reportName } from "./language/explain.js";
import { checkPayload } from "./language/payload.js";
import { PUBLISH, SEEN } from "./language/protocol.js";
import { DISPOSE } from "./base/dispose.js";
import { newId } from "./base/new-id.js";
import { report } from "./base/report.js";
import { createSession } from "./session/session.js";
import { checkPattern, checkTopic } from "./language/topic.js";

/** An origin and a namespace. */
const ADDRESS = /^https?:\/\/[^/?#]+\/[\w-]*$/;

export class Gate extends Dispatcher {
  #address;
  #session;
  /** Open loads (load.js). @type {Set<import("./load.js").Load>} */
  _loads = new Set();
  /** Open rooms (presence/room.js). @type {Set<{ _regranted: () => void }>} */
  _rooms = new Set();
  /** Checks the options of a part of this package. */
  _checkOptions = checkOptions;

  /**
   * Check the options of a part of this package, and its gate, which may come from another copy of the package.
   * @param {any} gate @param {[of: string, table: import("./language/options.js").Table, given: any]} call @throws {TypeError}
   */
  static _optionsOf(gate, ...call) {
    checkArgument(`${call[0]}: gate`, GATE, gate);
    return gate._checkOptions(...call);
  }

  /** Checks an argument of a part of this package. */
  static _check = checkArgument;

  /** @param {string} address origin and namespace @param {import("./connect.js").ConnectOptions} options @throws {TypeError} an option that breaks its rule */
  constructor(address, options) {
    super();
    explainMethods(this);
    const checked = checkOptions("connect", CONNECT, options);
    checkArgument("Gate: address", ADDRESS, address);
    this.#address = address;
    this.#session = createSession(this, address, checked);
    const { resync } = checked;
    if (resync) this.on("delivery:gap", (gap) => gap.lost && resync(gap), { _isPart: true });
  }

  /** Origin and namespace. */
  get address() {
    return this.#address;
  }

  /** The state of the connection. `status:change` reports each change. */
  get status() {
    return this.#session.connection.status();
  }

  /** Whether the gateway takes requests now. */
  get isUp() {
    return this.#session.connection.isUp();
  }

  /** A snapshot of the state. `state:change` reports a change of it; an event alone is none. @returns {State} */
  get state() {
    return this.#session.state();
  }

  /** Connect now, if the client is not connected or connecting. @returns {this} */
  open() {
    this.#session.open();
    return this;
  }

  /**
   * Subscribe a handler to a topic or pattern, also to one whose name `on` interprets (`all`).
   * @param {string} pattern
   * @param {SubscribeOptions | EventCallback} options `since` requests past events; `signal` ends the subscription
   * @param {EventCallback} [handler] called with (data, event)
   * @returns {Subscription} `ready` resolves when the pattern is active
   */
  subscribe(pattern, options, handler) {
    return this._subscribe(pattern, options, handler);
  }

  /**
   * Subscribe as `subscribe` does.
   * @param {string} pattern @param {any} [options] or the handler @param {EventCallback} [handler]
   * @param {boolean} [isPart] whether it belongs to a part of this package, so that only `close` ends it
   * @returns {Subscription}
   */
  _subscribe(pattern, options, handler = options, isPart) {
    checkPattern(pattern);
    const { signal, ...wanted } = checkOptions("subscribe", SUBSCRIBE, handler === options ? {} : options);
    checkArgument("subscribe: handler", "function", handler);
    const gate = this;
    let open = !signal?.aborted && gate.status !== "closed";
    // A separate function, so that close() ends only this subscription of the handler. It ends at once, because an earlier handler of the same event may
    // close it.
    /** @type {import("./dispatcher.js").Own} */
    const own = (data, event) => open && handler.call(gate, data, event);
    own._callback = handler;
    own._isPart = isPart;
    // Called after `off` and after `close`.
    own._left = () => {
      open = false;
      signal?.removeEventListener("abort", close);
    };
    const close = () => this._removeHandler(pattern, own);
    if (open) {
      // The function is its own context too, because the dispatcher calls a handler once for each context.
      this._addHandler(pattern, own, own, wanted);
      signal?.addEventListener("abort", close);
    }
    return {
      pattern,
      close,
      [DISPOSE]: close,
      get status() {
        return open ? gate.#session.standings.state(pattern) : "idle";
      },
      get ready() {
        const ready = open ? gate.subscribed(pattern) : Promise.reject(disconnected({ pattern }));
        // Reading the property must not cause an unhandled rejection. `delivery:error` reports the refusal.
        ready.catch(() => {});
        return ready;
      },
    };
  }

  /**
   * Wait until a pattern with handlers is active.
   * @param {string} pattern
   * @returns {Promise<void>} rejected with the refusal
   */
  async subscribed(pattern) {
    return this.#session.standings.subscribed(checkPattern(pattern));
  }

  /** Return the state of a pattern's subscription, and why its handlers get no events. `subscription:<pattern>` is called after each change. @param {string} pattern */
  _standing(pattern) {
    return this.#session.standings.standing(pattern);
  }

  /** Send a request of a part of this package. @param {[name: string, body: object, signal?: AbortSignal]} request @returns {Promise<any>} rejected with HeadgateError */
  _request(...request) {
    return this.#session.request(...request);
  }

  /** Return the position in the log; undefined: there is none, or the event being dispatched was read by `replay` or a repair. */
  _position() {
    return this.#session.position();
  }

  /** Return the name of a topic on the wire. @param {string} topic */
  _wired(topic) {
    return this.#session.wired(topic);
  }

  /** Wait until a pattern cannot become active by itself, and return why, or until `over` returns true. @param {string} pattern @param {() => boolean} over */
  _ended(pattern, over) {
    return this.#session.standings.ended(pattern, over);
  }

  /**
   * Publish an event, if the client's token grants that.
   * @param {string} topic
   * @param {unknown} data JSON
   * @param {{ id?: string, echo?: boolean, ephemeral?: boolean }} [options] `id`: that of an earlier try, so that the event is published once; `echo: false`: the handlers of
   *   this page do not get the event; `ephemeral`: it reaches the clients connected now, is not in the log, and is refused (`limit_reached`) rather than sent late
   * @returns {Promise<any>} a Receipt, or { id } for an ephemeral event; rejected with HeadgateError, whose `retry` says whether to try again. `outcome_unknown` {id}: it was
   *   sent and its answer is lost; publish it again with that id while ids count
   */
  async publish(topic, data, options = {}) {
    const { id = newId(), echo, ephemeral } = checkOptions("publish", PUBLISH_OPTIONS, options);
    const body = { topic: checkTopic(topic), data: checkPayload(data, this.#session.limits().maxPayloadBytes), id, ephemeral };
    // Before it is sent: the event may come before its receipt.
    if (echo === false) this.#session.leaveOut(id);
    return this._request(PUBLISH, body);
  }

  /**
   * Report which events the user has seen, at most 100, so that consumers do not mail them. Only for users with a token.
   * @param {string[]} ids
   * @returns {Promise<{ seen: number }>} rejected with HeadgateError; `retry` says whether to try again
   */
  async seen(ids) {
    checkArgument("seen: ids", TEXTS, ids);
    // It may wait for its turn, and the application may use the list again.
    return this._request(SEEN, { ids: [...ids] });
  }

  /**
   * Dispatch a part of the log again, to the handlers of one pattern, marked `replayed`. `gate.replay("orders.#", gap)` fetches a gap that the
   * client does not repair.
   * @param {string} pattern
   * @param {import("./session/gaps.js").Range} range
   * @returns {Promise<number>} the number of events; rejected with HeadgateError
   */
  async replay(pattern, range) {
    checkArgument("replay: range", "object", range);
    const { from, to, epoch } = range;
    // The gateway refuses a gap without offsets.
    checkOptions("replay: range", RANGE, { from: from ?? undefined, to: to ?? undefined, epoch });
    return this.#session.replay(checkPattern(pattern), range);
  }

  /**
   * Use another token, on the live connection and the next ones, until the gateway refuses it or a `token` function returns the next one. Without a connection
   * the next one uses it; a refused client connects now.
   * @param {string | null} [token] default: that of the `token` option
   * @returns {Promise<void>} rejected with HeadgateError: the gateway's refusal, or `token_unavailable`
   */
  async refresh(token) {
    checkRule("refresh: token", "string null", token);
    return this.#session.refresh(token);
  }

  /** Disconnect for good. No timer, listener or handler is left, nor a listener on the application's signals. */
  close() {
    // A handler of the last reports may call it again.
    if (this.status === "closed") return;
    this.#session.close();
    this.stopListening();
    this.#session.tellState();
    this._removeHandler();
  }

  /** @override @protected @param {string} name @param {SubscribeOptions} options */
  _handlerComes(name, options) {
    reportName(name);
    if (!isTopic(name)) return;
    checkPattern(name);
    const wishes = checkOptions("on", HANDLER, options);
    this.#session.handlerComes(name, wishes);
    return wishes;
  }

  /** @override @protected @param {string} name @param {SubscribeOptions} options */
  _handlerLeft(name, options) {
    if (isTopic(name)) this.#session.handlerLeft(name, options);
  }

  /** @override @param {unknown} error @param {string} name */
  _handlerFailed(error, name) {
    report(error);
    if (name !== "delivery:error") this.trigger("delivery:error", { error, topic: name });
  }
}
