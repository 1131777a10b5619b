/**
 * The gate: what `connect` returns. A dispatcher whose topics and patterns are subscribed at the gateway.
 *
 * In: handlers from the application, messages from the connection through the inbox. Out: handler calls, lifecycle events
 * (their names have a colon, which no topic has), requests. Order: everything from the gateway is dispatched in the order
 * of arrival; a gap is told before anything later.
 *
 * Lifecycle events: `connection:up` {session, user, resumed, epoch, offset} · `connection:down` {reason, delay_ms} ·
 * `connection:refused` HeadgateError, {delay_ms} · `connection:unauthorized` HeadgateError (the gateway puts us out: expired
 * or revoked) · `connection:moving` {reason, within_s} · `delivery:gap` {patterns, from, to, count, bytes, reason,
 * recoverable, repairing, lost} · `delivery:backpressure` {state, queued, queued_bytes, discarded, conflated, where} ·
 * `delivery:resumed` {epoch, offset, repaired?: {patterns, from, to, count}} · `delivery:error` {error, pattern?, topic?} ·
 * `state:change` state.
 *
 * A gap is `repairing` when its events are being fetched from the log: they come marked `replayed`, behind what came
 * meanwhile, and `delivery:resumed` says when all have. It is `lost` when they will not come; then `resync` is called, once.
 * Neither: the subscription said `repair: false`, and `gate.replay` can fetch them.
 *
 * @import { Callback, Handler } from "./dispatcher.js"
 * @import { ConnectionOptions, ConnectionState } from "./connection.js"
 * @import { Job } from "./repair.js"
 * @import { EventMeta, Gap, Limits, Overflow, Position, Since, Status, Welcome } from "./protocol.js"
 * @import { Request } from "./subscriptions.js"
 *
 * @typedef {object} HeadgateEvent what a handler gets beside the data
 * @property {string} topic
 * @property {any} data
 * @property {string | null} id
 * @property {number} time milliseconds since 1970, the time of the log
 * @property {number | null} offset null: a plain PUBLISH, live only
 * @property {boolean} replayed
 * @property {string} pattern of the handler that gets it
 *
 * @typedef {object} State
 * @property {ConnectionState} connection
 * @property {"up" | "down"} bus the gateway's link to Redis
 * @property {string | null} session
 * @property {string | null} user
 * @property {string | null} epoch
 * @property {number | null} offset
 * @property {Record<string, string>} subscriptions pattern → asking, active, refused, …
 * @property {Limits} limits
 * @property {number} received events dispatched
 * @property {number} waiting messages not yet dispatched
 * @property {number} gaps
 * @property {number} missed events in those gaps, as far as they are numbered, that have not been repaired
 *
 * @typedef {{ overflow?: Overflow, repair?: boolean, since?: Since, signal?: AbortSignal }} SubscribeOptions
 * @typedef {{ repairing: boolean, lost: boolean }} Fate
 * @typedef {{ epoch: string, offset: number, duplicate?: boolean }} Receipt
 * @typedef {{ pattern: string, ready: Promise<void>, close: () => void }} Subscription
 *
 * @typedef {object} GateOnlyOptions
 * @property {number} inboxLimit messages
 * @property {Record<string, any>} [auth] more for the CONNECT auth object
 * @property {Position} [resume]
 * @property {(gap: Gap & Fate) => void} [resync] called when events will not come
 * @typedef {ConnectionOptions & GateOnlyOptions} GateOptions
 *
 * @typedef {{ name: string, args: any[], isCurrent: () => boolean }} Message
 */
import { Budget } from "./budget.js";
import { Connection } from "./connection.js";
import { Cursor } from "./cursor.js";
import { Dispatcher, report } from "./dispatcher.js";
import { HeadgateError } from "./errors.js";
import { Inbox } from "./inbox.js";
import { watchPage } from "./page.js";
import { checkPayload } from "./payload.js";
import * as wire from "./protocol.js";
import { Repair } from "./repair.js";
import { Subscriptions } from "./subscriptions.js";
import { checkPattern, checkTopic, matches } from "./topic.js";

/** What a client may send until the gateway has said: the gateway's own defaults. */
const DEFAULT_LIMITS = { max_payload_bytes: 65536, inbound_per_s: 50, inbound_burst: 100 };
/** Time before a request that was refused for a passing reason is made again. */
const RETRY_MS = 2000;

export class Gate extends Dispatcher {
  #subscriptions = new Subscriptions();
  #cursor = new Cursor();
  #repair = new Repair(
    (job) => this.#fetch(job),
    () => this.#budget.take(performance.now()),
    (job) => this.#repaired(job),
  );
  /** @type {Inbox<Message>} */
  #inbox;
  #connection;
  #options;
  #unwatchPage;
  #budget = new Budget(DEFAULT_LIMITS.inbound_per_s, DEFAULT_LIMITS.inbound_burst, 0);
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #syncTimer;
  #changeDue = false;
  #resuming = false;
  #told = {
    bus: /** @type {"up" | "down"} */ ("up"),
    session: /** @type {string | null} */ (null),
    user: /** @type {string | null} */ (null),
    limits: /** @type {Limits} */ (DEFAULT_LIMITS),
    received: 0,
    gaps: 0,
    missed: 0,
  };

  /** @param {string} address origin and namespace @param {GateOptions} options */
  constructor(address, options) {
    super();
    this.#options = options;
    if (options.resume) this.#cursor.advance(options.resume);
    this.#inbox = new Inbox(
      options.inboxLimit,
      (message) => this.#take(message),
      (discarded) => this.#overflowed(discarded),
    );
    this.#connection = new Connection(address, options, {
      greeting: async () => this.#greeting(),
      received: (name, args, isCurrent) => this.#inbox.put({ name, args, isCurrent }),
      wentDown: (reason, delayMs) => this.#wentDown(reason, delayMs),
      wasRefused: (error, delayMs) => this.trigger("connection:refused", error, { delay_ms: delayMs }),
      changed: () => this.#changed(),
      refreshing: () => {
        const retry = this.#subscriptions.retryRefused();
        return () => {
          retry();
          this.#changed();
        };
      },
    });
    this.#unwatchPage = watchPage(
      () => this.#connection.wake(),
      () => this.#connection.pause(),
    );
  }

  /** What is going on, as a snapshot; `state:change` says when it is worth reading again (not for every event). @returns {State} */
  get state() {
    const { epoch, offset } = this.#cursor;
    return Object.freeze({
      ...this.#told, epoch, offset, connection: this.#connection.state, waiting: this.#inbox.depth,
      subscriptions: Object.fromEntries(this.#subscriptions.wanted().map(({ pattern, standing }) => [pattern, standing])),
    });
  }

  /** Connect, if not connected: at the start, and again after a refusal. @returns {this} */
  open() {
    this.#connection.open();
    return this;
  }

  /**
   * Subscribe a handler to a topic or pattern: `on` with options, for names that `on` reads otherwise too (`all`).
   * @param {string} pattern
   * @param {SubscribeOptions | Callback} options `since` asks for a part of the past; `signal` ends the subscription
   * @param {Callback} [handler] called with (data, event)
   * @returns {Subscription} `ready` is settled by the gateway's answer
   */
  subscribe(pattern, options, handler) {
    if (typeof options === "function") return this.subscribe(pattern, {}, options);
    if (typeof handler !== "function") throw new TypeError("subscribe needs a handler");
    const { signal, ...wanted } = options;
    // Its own function, so that close() ends this subscription and no other of the same handler.
    /** @type {Callback & { _callback?: Callback }} */
    const own = function (...args) {
      return handler.apply(this, args);
    };
    own._callback = handler;
    const close = () => {
      signal?.removeEventListener("abort", close);
      this.removeHandler(pattern, own);
    };
    if (!signal?.aborted) {
      this.addHandler(checkPattern(pattern), own, undefined, wanted);
      signal?.addEventListener("abort", close, { once: true });
    }
    const gate = this;
    return {
      pattern,
      close,
      get ready() {
        return gate.subscribed(pattern);
      },
    };
  }

  /**
   * Return a promise for the gateway's acknowledgement of a pattern that has handlers.
   * @param {string} pattern
   * @returns {Promise<void>} rejected with the refusal
   */
  subscribed(pattern) {
    return this.#subscriptions.acknowledged(pattern);
  }

  /**
   * Publish an event, if the client's token grants it.
   * @param {string} topic
   * @param {unknown} data JSON
   * @param {{ id?: string }} [options] `id` makes it safe to try again
   * @returns {Promise<Receipt>} rejected with HeadgateError; `retry` says whether to try again
   */
  async publish(topic, data, { id } = {}) {
    const body = { topic: checkTopic(topic), data: checkPayload(data, this.#told.limits.max_payload_bytes ?? Infinity) };
    const { ok, ...receipt } = await this.#connection.request(wire.PUBLISH, id === undefined ? body : { ...body, id });
    return receipt;
  }

  /**
   * Dispatch a part of the log again, to the handlers of one pattern; its events are marked `replayed`. For what a gap has
   * left out where nothing repairs it: `gate.replay("orders.#", gap)`.
   * @param {string} pattern
   * @param {{ from: number, to: number }} range offsets, inclusive
   * @returns {Promise<number>} how many events there were; rejected with HeadgateError
   */
  async replay(pattern, { from, to }) {
    let count = 0;
    const take = (/** @type {string} */ topic, /** @type {any} */ data, /** @type {EventMeta} */ meta) => {
      count++;
      this.#deliver(topic, data, meta, (each) => each === pattern);
    };
    let next = /** @type {number | null} */ (from);
    while (next) next = await this.#page(checkPattern(pattern), next, to, take);
    return count;
  }

  /**
   * Put another token in force on the live connection.
   * @param {string} [token] else the `token` option is asked
   */
  refresh(token) {
    return this.#connection.refresh(token);
  }

  /** Remove every handler of every topic and pattern; lifecycle handlers stay. @returns {this} */
  unsubscribeAll() {
    for (const { pattern } of this.#subscriptions.wanted()) this.removeHandler(pattern, null);
    return this;
  }

  /** Disconnect for good; no timer, listener or handler is left. */
  close() {
    this.#connection.close();
    this.#unwatchPage();
    clearTimeout(this.#syncTimer);
    this.#repair.clear();
    this.#inbox.close();
    this.#subscriptions.close();
    this.stopListening();
    this.trigger("state:change", this.state);
    this.off();
  }

  /** @override @protected @param {string} name @param {Handler[]} handlers @param {SubscribeOptions} [added] */
  handlersChanged(name, handlers, added) {
    if (typeof name === "string" && name.includes(":")) return;
    checkPattern(name);
    if (this.#connection.state === "closed") return;
    if (handlers.length) this.#subscriptions.want(name, handlers.map(({ options = {} }) => options));
    else {
      this.#subscriptions.unwant(name);
      this.#cursor.forget(name);
    }
    if (added?.since) {
      this.#cursor.expect(name, added.since);
      this.#subscriptions.rewind(name, added.since);
    }
    if (added) this.#subscriptions.again(name);
    this.#changed();
  }

  /** @override @protected @param {unknown} error @param {string} name */
  handlerFailed(error, name) {
    report(error);
    if (name !== "delivery:error") this.trigger("delivery:error", { error, topic: name });
  }

  #greeting() {
    const { resume } = this.#cursor;
    this.#resuming = resume !== undefined;
    // Asked for again once the connection is up: a position and a past do not go together in one CONNECT.
    for (const [pattern, since] of this.#cursor.expected()) this.#subscriptions.rewind(pattern, since);
    // A new page that goes on where another stopped wants the past for all that it has.
    const subscriptions = this.#subscriptions.connecting(this.#resuming && this.#told.session !== null);
    return { ...this.#options.auth, ...(resume ? { resume } : {}), subscriptions };
  }

  /** @param {Message} message */
  #take({ name, args, isCurrent }) {
    try {
      if (name === wire.EVENT) this.#takeEvent(args[0], args[1], args[2] ?? {});
      else if (name === wire.WELCOME && isCurrent()) this.#takeWelcome(args[0]);
      else if (name === wire.CURSOR && isCurrent()) this.#cursor.advance(args[0]);
      else this.#takeNotice(name, args[0]);
    } catch (error) {
      this.handlerFailed(error, name);
    }
  }

  /** @param {string} topic @param {any} data @param {EventMeta} meta */
  #takeEvent(topic, data, meta) {
    const admits = this.#cursor.admit(meta);
    if (admits && this.#deliver(topic, data, meta, admits)) this.#told.received++;
  }

  /** @param {string} topic @param {any} data @param {EventMeta} meta @param {(pattern: string) => boolean} admits */
  #deliver(topic, data, meta, admits) {
    const { id = null, time, offset = null, replayed = false } = meta;
    return this.dispatch(topic, data, (pattern) => ({ topic, data, id, time, offset, replayed, pattern }), admits);
  }

  /** @param {Welcome} welcome */
  #takeWelcome(welcome) {
    const { session, user = null, epoch, offset, limits, resumed, subscriptions } = welcome;
    // Resumed: what lies between our cursor and `offset` is about to come. Not resumed, same log: so is the rest, behind a
    // gap. Another log, or one that has lost its end: it starts there. Only a new client starts at the head for certain.
    if (!this.#resuming) this.#cursor.advance({ epoch, offset });
    else if (!resumed && (epoch !== this.#cursor.epoch || offset < (this.#cursor.offset ?? 0))) this.#cursor.restart(epoch, offset);
    Object.assign(this.#told, { session, user, limits: limits ?? DEFAULT_LIMITS, bus: "up" });
    const { inbound_per_s = 50, inbound_burst = 100 } = this.#told.limits;
    this.#budget = new Budget(inbound_per_s, inbound_burst, performance.now());
    const refused = this.#subscriptions.welcomed(subscriptions ?? []);
    this.#connection.welcomed();
    this.trigger("connection:up", { session, user, resumed, epoch, offset });
    for (const refusal of refused) this.trigger("delivery:error", refusal);
    if (resumed) this.trigger("delivery:resumed", { epoch, offset });
    this.#changed();
  }

  /** @param {string} name @param {any} body */
  #takeNotice(name, body) {
    if (name === wire.GAP) this.#takeGap(body);
    else if (name === wire.BACKPRESSURE) this.trigger("delivery:backpressure", { ...body, where: "gateway" });
    else if (name === wire.STATUS) this.#takeStatus(body);
    // Anything else is a message of a later protocol.
  }

  /** @param {Gap} gap */
  #takeGap(gap) {
    const { from, to, reason } = gap;
    this.#told.gaps++;
    this.#told.missed += gap.count ?? (from !== null && to !== null ? to - from + 1 : 0);
    // Only for these is nothing at or below `to` still to come; events of another policy may lie in the other ranges.
    if (reason === wire.LOG_LOST) {
      this.#cursor.restart();
      this.#repair.clear();
    }
    else if (reason === wire.TRIMMED && to !== null && this.#cursor.epoch) {
      this.#cursor.advance({ epoch: this.#cursor.epoch, offset: to });
    }
    this.#changed();
    const wanted = gap.recoverable ? this.#subscriptions.repaired(gap.patterns) : [];
    const repairing = wanted.length > 0 && this.#repair.add(gap, wanted);
    this.#tell(gap, repairing, !repairing && (!gap.recoverable || wanted.length > 0));
  }

  /** @param {Gap} gap @param {boolean} repairing @param {boolean} lost */
  #tell(gap, repairing, lost) {
    const told = { ...gap, repairing, lost };
    this.trigger("delivery:gap", told);
    if (lost) this.#options.resync?.(told);
  }

  /**
   * @param {string} pattern @param {number} from @param {number} to
   * @param {(topic: string, data: any, meta: EventMeta) => void} take
   * @returns {Promise<number | null>} where the next page begins
   */
  async #page(pattern, from, to, take) {
    const { events, next } = await this.#connection.request(wire.REPLAY, { pattern, from, to });
    for (const event of events) take(.../** @type {[string, any, EventMeta]} */ (event));
    return next;
  }

  /** @param {Job} job */
  #fetch(job) {
    const { gap, patterns, nth } = job;
    return this.#page(patterns[nth], Number(job.from), Number(gap.to), (topic, data, meta) => {
      // What a stronger policy matches was not left out; what an earlier pattern matches has been brought.
      if (this.#subscriptions.policy(topic) !== "drop" || patterns.slice(0, nth).some((each) => matches(each, topic))) return;
      job.count++;
      this.#deliver(topic, data, meta, (each) => patterns.includes(each));
    });
  }

  /** @param {Job} job */
  #repaired({ gap, patterns, count }) {
    const { from, to } = gap;
    const { epoch, offset } = this.#cursor;
    this.#told.missed -= count;
    if (count) this.trigger("delivery:resumed", { epoch, offset, repaired: { patterns, from, to, count } });
    // The gateway counts exactly. Without an offset, trimmed meanwhile, conflated, refused: what has not come, will not.
    const rest = (gap.count ?? 0) - count;
    if (rest > 0 && patterns.length === gap.patterns.length) this.#tell({ ...gap, count: rest, recoverable: false }, false, true);
    this.#changed();
  }

  /** @param {Status} status */
  #takeStatus({ bus, moving, ended = [], unauthorized }) {
    if (bus) this.#told.bus = bus;
    if (moving) {
      // Anywhere in the time given, so that the next gateway does not get everybody at once.
      this.#connection.renew(moving.reason, Math.random() * moving.within_s * 1000);
      this.trigger("connection:moving", moving);
    }
    for (const { pattern, error } of ended) {
      const refusal = HeadgateError.fromWire(error);
      if (this.#subscriptions.ended(pattern, refusal)) this.trigger("delivery:error", { pattern, error: refusal });
    }
    if (unauthorized) this.trigger("connection:unauthorized", HeadgateError.fromWire(unauthorized));
    this.#changed();
  }

  /**
   * The page was too slow for what came. Notices are still told; numbered events come again, because the cursor is behind
   * them; what has no number is lost, and counted.
   * @param {Message[]} discarded
   */
  #overflowed(discarded) {
    const notice = { state: "on", queued: 0, queued_bytes: 0, discarded: discarded.length, where: "browser" };
    this.trigger("delivery:backpressure", notice);
    for (const { name, args } of discarded) if (name === wire.GAP || name === wire.STATUS) this.#takeNotice(name, args[0]);
    const { resume } = this.#cursor;
    const lost = discarded.filter(({ name, args }) => name === wire.EVENT && !(resume && args[2].offset));
    if (lost.length) {
      const patterns = this.#subscriptions.wanted().map(({ pattern }) => pattern);
      this.#takeGap({ patterns, from: null, to: null, count: lost.length, bytes: null, reason: "overflow", recoverable: false });
    }
    this.#connection.renew("the page was too slow");
  }

  /** @param {string} reason @param {number | null} delayMs */
  #wentDown(reason, delayMs) {
    clearTimeout(this.#syncTimer);
    this.#syncTimer = undefined;
    this.#subscriptions.down();
    this.trigger("connection:down", { reason, delay_ms: delayMs });
  }

  #request() {
    if (this.#connection.state !== "up" || this.#syncTimer !== undefined) return;
    for (;;) {
      const waitMs = this.#subscriptions.pending() ? this.#budget.take(performance.now()) : 0;
      if (waitMs) return this.#syncAfter(waitMs);
      const request = this.#subscriptions.next();
      if (!request) return;
      this.#connection.request(request.name, request.body).then(
        () => this.#settle(request, null),
        (error) => this.#settle(request, error),
      );
    }
  }

  /** @param {Request} request @param {HeadgateError | null} error */
  #settle(request, error) {
    // The connection it was made on is gone; the next one starts from what is wanted.
    if (this.#connection.state !== "up" || error?.code === "disconnected") return;
    const refusal = this.#subscriptions.settled(request, error);
    if (refusal) this.trigger("delivery:error", { pattern: request.body.pattern, error: refusal });
    if (error?.retry) this.#syncAfter(RETRY_MS * (0.5 + Math.random()));
    this.#changed();
  }

  /** @param {number} delayMs */
  #syncAfter(delayMs) {
    clearTimeout(this.#syncTimer);
    this.#syncTimer = setTimeout(() => {
      this.#syncTimer = undefined;
      this.#changed();
    }, delayMs);
  }

  /**
   * Something has changed: at the end of the present task's microtasks, so that changes that cancel out cost nothing, bring
   * subscriptions into step and tell.
   */
  #changed() {
    if (this.#changeDue) return;
    this.#changeDue = true;
    queueMicrotask(() => {
      this.#changeDue = false;
      this.#request();
      this.trigger("state:change", this.state);
    });
  }
}
