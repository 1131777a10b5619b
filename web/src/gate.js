/**
 * The gate: a dispatcher that subscribes its topics and patterns at the gateway. `connect` returns one.
 *
 * In: handlers from the application. Out: handler calls, lifecycle events (their names have a colon, which no topic has).
 * session/ keeps up the exchange with the gateway.
 *
 * Lifecycle events: `connection:up` {session, user, resumed, epoch, offset, limits, …} · `connection:down` {reason, delayMs} ·
 * `connection:refused` HeadgateError (refused, no token, or `unreachable`), {delayMs} · `connection:unauthorized` HeadgateError (the gateway disconnects this client because its token has expired
 * or was revoked) · `connection:moving` {reason, withinS} · `delivery:gap` {patterns, from, to, count, bytes, reason,
 * recoverable, repairing, lost} · `delivery:backpressure` {state, queued, queuedBytes, discarded, conflated, where} ·
 * `delivery:resumed` {epoch, offset, repaired?: {patterns, from, to, count}} · `delivery:error` {error, pattern?, topic?} ·
 * `status:change` {status, previous, reason}, each change · `state:change` state. An outbox (offline/outbox.js) reports `publish:queued`,
 * `publish:receipt` and `publish:refused`.
 *
 * A gap is `repairing` while its events are fetched from the log. They come marked `replayed`, after events that came
 * in between, and `delivery:resumed` reports the end. It is `lost` when they will not come; then `resync` is called, once.
 * If it is neither, the subscription has `repair: false`, and `gate.replay` can fetch the events.
 *
 * @import { EventCallback } from "./dispatcher.js"
 * @import { EventMeta, Overflow, Since } from "./language/protocol.js"
 * @import { SessionOptions, State } from "./session/session.js"
 *
 * @typedef {object} HeadgateEvent the second argument of a handler
 * @property {string} topic
 * @property {any} data
 * @property {string | null} id
 * @property {number} time milliseconds since 1970, the time of the log
 * @property {number | null} offset null: a plain PUBLISH, live only
 * @property {boolean} replayed
 * @property {string} [traceparent] of the span that published it (W3C Trace Context)
 * @property {string} [by] the user who published it, as the gateway knows it, where HEADGATE_EVENT_BY has the topic
 * @property {string} pattern of the handler that gets it
 *
 * @typedef {{ overflow?: Overflow, repair?: boolean, since?: Since, signal?: AbortSignal }} SubscribeOptions
 * @typedef {{ epoch: string, offset: number, duplicate?: boolean }} Receipt
 * @typedef {{ pattern: string, status: import("./subscriptions/subscription.js").SubscriptionState, ready: Promise<void>, close: () => void, [Symbol.dispose]: () => void }} Subscription
 */
import { Dispatcher, isTopic } from "./dispatcher.js";
import { disconnected } from "./language/errors.js";
import { checkArgument, checkOptions, checkRule, CONNECT, GATE, PUBLISH as PUBLISH_OPTIONS, RANGE, SIGNAL, SUBSCRIBE, TEXTS } from "./language/options.js";
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
  /** Those that go on (load.js). @type {Set<import("./load.js").Load>} */
  _loads = new Set();
  /** Likewise (presence/room.js). @type {Set<{ _regranted: () => void }>} */
  _rooms = new Set();
  /** Checks the options of a part of this package. */
  _checkOptions = checkOptions;

  /**
   * Check the options of a part of this package, and its gate, which may be of another copy of it.
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
  }

  /** Origin and namespace. */
  get address() {
    return this.#address;
  }

  /** The state of the connection in one word; `status:change` reports each change. */
  get status() {
    return this.#session.connection.status();
  }

  /** Whether the gateway takes requests now. */
  get isUp() {
    return this.#session.connection.isUp();
  }

  /** A snapshot of the state; `state:change` announces a change of it (not every event). @returns {State} */
  get state() {
    return this.#session.state();
  }

  /** Connect, if not connected: at the start, and again after a refusal. @returns {this} */
  open() {
    this.#session.open();
    return this;
  }

  /**
   * Subscribe a handler to a topic or pattern: `on` with options, for names that `on` reads otherwise too (`all`).
   * @param {string} pattern
   * @param {SubscribeOptions | EventCallback} options `since` asks for a part of the past; `signal` ends the subscription
   * @param {EventCallback} [handler] called with (data, event)
   * @returns {Subscription} `ready` is settled by the gateway's answer
   */
  subscribe(pattern, options, handler) {
    return this._subscribe(pattern, options, handler);
  }

  /**
   * Subscribe as `subscribe` does.
   * @param {string} pattern @param {any} [options] @param {EventCallback} [handler] the options, if there are none
   * @param {boolean} [isPart] of this package: it ends by `close` alone
   * @returns {Subscription}
   */
  _subscribe(pattern, options = {}, handler = options, isPart) {
    if (handler === options) options = {};
    checkPattern(pattern);
    checkRule("subscribe: options", "object", options);
    checkRule("subscribe: signal", SIGNAL, options.signal);
    checkArgument("subscribe: handler", "function", handler);
    const { signal, ...wanted } = options;
    const gate = this;
    let open = !signal?.aborted && gate.status !== "closed";
    // A separate function, so that close() ends only this subscription of the handler. It ends at once, because an
    // earlier handler of the same event may close it.
    /** @type {import("./dispatcher.js").Own} */
    const own = (data, event) => open && handler.call(gate, data, event);
    own._callback = handler;
    own._isPart = isPart;
    // By `off` as by `close`.
    own._left = () => {
      open = false;
      signal?.removeEventListener("abort", close);
    };
    const close = () => this._removeHandler(pattern, own);
    if (open) {
      // Its own context too: two subscriptions of one handler are two.
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
        // Reading it must not make an unhandled rejection; `delivery:error` reports the refusal.
        ready.catch(() => {});
        return ready;
      },
    };
  }

  /**
   * Return a promise for the gateway's acknowledgement of a pattern with handlers.
   * @param {string} pattern
   * @returns {Promise<void>} rejected with the refusal
   */
  async subscribed(pattern) {
    return this.#session.standings.subscribed(checkPattern(pattern));
  }

  /** Return the state of a pattern's subscription, and why its handlers get nothing; `subscription:<pattern>` is called after each change. @param {string} pattern */
  _standing(pattern) {
    return this.#session.standings.standing(pattern);
  }

  /** Make a request of a part of this package. @param {[name: string, body: object, signal?: AbortSignal]} request @returns {Promise<any>} rejected with HeadgateError */
  _request(...request) {
    return this.#session.request(...request);
  }

  /** Return the position in the log; undefined: there is none, or the event whose handlers are called was read by `replay` or a repair. */
  _position() {
    return this.#session.position();
  }

  /** Return the name of a topic on the wire. @param {string} topic */
  _wired(topic) {
    return this.#session.wired(topic);
  }

  /** Wait until a pattern will not be active any more by itself, and return why, or until it is `over`. @param {string} pattern @param {() => boolean} over */
  _ended(pattern, over) {
    return this.#session.standings.ended(pattern, over);
  }

  /**
   * Publish an event, if the client's token grants that.
   * @param {string} topic
   * @param {unknown} data JSON
   * @param {{ id?: string, echo?: boolean, ephemeral?: boolean }} [options] `id`: of an earlier try, so that it is published once; `echo: false`: the handlers of this page do
   *   not get the event, only those of others; `ephemeral`: it reaches the clients connected now, is not in the log, and is refused (`limit_reached`) rather than sent late
   * @returns {Promise<any>} a Receipt, rejected with HeadgateError; `retry` says whether to try again. `outcome_unknown` {id}: it was sent and its answer
   *   is lost; publishing it again by that id is safe for as long as the gateway remembers ids. Of an ephemeral event it is { id }
   */
  async publish(topic, data, options = {}) {
    const { id = newId(), echo, ephemeral } = checkOptions("publish", PUBLISH_OPTIONS, options);
    const body = { topic: checkTopic(topic), data: checkPayload(data, this.#session.limits().maxPayloadBytes), id, ephemeral };
    // Before it is sent: the event may come before its receipt.
    if (echo === false) this.#session.leaveOut(id);
    return this._request(PUBLISH, body);
  }

  /**
   * Report which events the user was shown, at most 100, so that consumers need not mail them. For users with a token only.
   * @param {string[]} ids
   * @returns {Promise<{ seen: number }>} rejected with HeadgateError; `retry` says whether to try again
   */
  async seen(ids) {
    checkArgument("seen: ids", TEXTS, ids);
    return this._request(SEEN, { ids });
  }

  /**
   * Dispatch a part of the log again, to the handlers of one pattern; its events are marked `replayed`. For a gap
   * that is not repaired by itself: `gate.replay("orders.#", gap)`.
   * @param {string} pattern
   * @param {import("./session/gaps.js").Range} range
   * @returns {Promise<number>} how many events there were; rejected with HeadgateError
   */
  async replay(pattern, range) {
    checkArgument("replay: range", "object", range);
    const { from, to, epoch } = range;
    // A gap without offsets is for the gateway to refuse.
    checkOptions("replay: range", RANGE, { from: from ?? undefined, to: to ?? undefined, epoch });
    return this.#session.replay(checkPattern(pattern), range);
  }

  /**
   * Use another token: on the live connection, and for every connection from now on until the gateway refuses it or a `token`
   * function brings the next. Without a connection the next one shows it; after a refusal that is now.
   * @param {string} [token] else that of the `token` option
   * @returns {Promise<void>} rejected with HeadgateError: the gateway's refusal, or `token_unavailable`
   */
  async refresh(token) {
    checkRule("refresh: token", "string null", token);
    return this.#session.refresh(token);
  }

  /** Disconnect for good; no timer, listener or handler is left, also on the application's signals. */
  close() {
    // A handler of its last reports may call it too.
    if (this.status === "closed") return;
    this.#session.close();
    this.stopListening();
    this.#session.tellState();
    this._removeHandler();
  }

  /** @override @protected @param {string} name @param {SubscribeOptions} options */
  _handlerComes(name, options) {
    if (!isTopic(name)) return;
    checkPattern(name);
    reportName(name);
    checkOptions("subscribe", SUBSCRIBE, options);
    this.#session.handlerComes(name, options);
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
