/**
 * The session: what goes on between one gate and its gateway, over however many connections.
 *
 * In: messages from the connection, through the inbox; which patterns have handlers. Out: calls of the gate's handlers,
 * lifecycle events, requests. Order: everything from the gateway is dispatched in the order of arrival; a gap is told before
 * anything later.
 *
 * @import { SubscribeOptions } from "./gate.js"
 * @import { ConnectionOptions, ConnectionState } from "./connection.js"
 * @import { Dispatcher } from "./dispatcher.js"
 * @import { HeadgateError } from "./errors.js"
 * @import { Job } from "./repair.js"
 * @import { EventMeta, Gap, Limits, Position, Status, Welcome } from "./protocol.js"
 * @import { Refusal } from "./subscriptions.js"
 *
 * @typedef {{ repairing: boolean, lost: boolean }} Fate
 *
 * @typedef {object} SessionOnlyOptions
 * @property {number} [inboxLimit] messages that may wait for a busy page, default 10000
 * @property {Record<string, any>} [auth] more for the CONNECT auth object
 * @property {Position} [resume] where an earlier page of this user stopped, from its `state`
 * @property {(gap: Gap & Fate) => void} [resync] called when events will not come
 * @typedef {ConnectionOptions & SessionOnlyOptions} SessionOptions
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
 * @typedef {[generation: number, name: string, args: any[]]} Message
 */
import { createBudget } from "./budget.js";
import { createConnection } from "./connection.js";
import { createCursor } from "./cursor.js";
import { report } from "./dispatcher.js";
import { disconnected, fromWire } from "./errors.js";
import { createInbox } from "./inbox.js";
import { watchPage } from "./page.js";
import * as wire from "./protocol.js";
import { createRepair } from "./repair.js";
import { createSubscriptions } from "./subscriptions.js";
import { matches } from "./topic.js";

/** Time before a request that was refused for a passing reason is made again. */
const RETRY_MS = 2000;

/** @param {Dispatcher} gate @param {string} address origin and namespace @param {SessionOptions} options */
export function createSession(gate, address, options) {
  const subscriptions = createSubscriptions();
  const cursor = createCursor();
  const told = {
    bus: /** @type {"up" | "down"} */ ("up"),
    session: /** @type {string | null} */ (null),
    user: /** @type {string | null} */ (null),
    limits: /** @type {Limits} */ ({}),
    received: 0,
    gaps: 0,
    missed: 0,
  };
  /** @type {ReturnType<typeof createBudget>} */
  let budget;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let syncTimer;
  let changeDue = false;
  /** @type {((nothing?: any) => void)[]} who waits for a change */
  const waiters = [];
  let resuming = false;

  const inbox = createInbox(options.inboxLimit ?? 10_000, take, overflowed);
  const repair = createRepair(fetch, () => budget(), repaired);
  const connection = createConnection(address, options, {
    _greeting: greeting,
    _received: (...message) => inbox._put(message),
    _down() {
      clearTimeout(syncTimer);
      syncTimer = undefined;
      subscriptions._down();
    },
    _tell: tell,
    _changed: changed,
    _refresh: refresh,
  });
  const unwatchPage = watchPage(connection._wake, connection._pause);
  if (options.resume) cursor._advance(options.resume);

  function greeting() {
    const resume = cursor._resume();
    resuming = !!resume;
    // Asked for again once the connection is up: a position and a past do not go together in one CONNECT.
    for (const [pattern, { since }] of cursor._pasts) subscriptions._rewind(pattern, since);
    // A new page that goes on where another stopped wants the past for all that it has.
    return { ...options.auth, resume, subscriptions: subscriptions._connecting(resuming && told.session) };
  }

  /**
   * Put another token in force on the live connection, and ask again for what was refused.
   * @param {string} [given] else the source is asked
   */
  async function refresh(given) {
    const token = given ?? (await connection._currentToken());
    // What the new token no longer grants is told meanwhile, and must not be asked for.
    const refused = subscriptions._refused();
    await connection._refresh(token);
    refused.forEach(subscriptions._again);
    changed();
  }

  /** What to do with each message. Anything else is one of a later protocol. @type {Record<string, (...args: any[]) => void>} */
  const takes = {
    event(topic, data, meta = {}) {
      const admits = cursor._admit(meta);
      if (admits && deliver(topic, data, meta, admits)) told.received++;
    },
    welcome: welcomed,
    cursor: cursor._advance,
    gap: takeGap,
    backpressure: (notice) => tell("delivery:backpressure", { ...notice, where: "gateway" }),
    status: takeStatus,
  };

  /** @param {Message} message */
  function take([generation, name, args]) {
    try {
      // A welcome is to the present connection or to none.
      if (name !== wire.WELCOME || generation === connection._generation()) takes[name]?.(...args);
    } catch (error) {
      gate._handlerFailed(error, name);
    }
  }

  /** @param {string} name @param {any} what @param {any} [more] */
  function tell(name, what, ...more) {
    const { error = what } = what;
    // What nobody listens for, the console shall show; but not each attempt of a client that was in before.
    if (error.code && !(error.retry && told.session) && !gate._heard(name)) report(error);
    gate.trigger(name, what, ...more);
    changed();
  }

  /** @param {string} topic @param {any} data @param {EventMeta} meta @param {(pattern: string) => boolean} admits */
  function deliver(topic, data, meta, admits) {
    return gate.dispatch(topic, data, (pattern) => ({ id: null, offset: null, replayed: false, ...meta, topic, data, pattern }), admits);
  }

  /** @param {Welcome} welcome */
  function welcomed(welcome) {
    const { session, user, epoch, offset, limits, resumed } = welcome;
    const at = cursor._resume();
    // Resumed: what lies between our cursor and `offset` is about to come. Not resumed, same log: so is the rest, behind a
    // gap. Another log, or one that has lost its end: it starts there. Only a new client starts at the head for certain.
    if (!resuming) cursor._advance(welcome);
    else if (!resumed && (epoch !== at?.epoch || offset < at.offset)) cursor._restart(epoch, offset);
    Object.assign(told, { session, user, limits, bus: "up" });
    budget = createBudget(limits);
    const refused = subscriptions._welcomed(welcome.subscriptions);
    connection._welcomed();
    tell("connection:up", welcome);
    refused.forEach(tellRefusal);
    if (resumed) tell("delivery:resumed", { epoch, offset });
  }

  /** @param {Refusal | null | undefined} refusal */
  function tellRefusal(refusal) {
    if (refusal) tell("delivery:error", refusal);
  }

  /** @param {Gap} gap */
  function takeGap(gap) {
    const { from, to, reason, recoverable } = gap;
    told.gaps++;
    told.missed += gap.count ?? (from && to ? to - from + 1 : 0);
    // Only for these is nothing at or below `to` still to come; events of another policy may lie in the other ranges.
    if (reason === wire.LOG_LOST) {
      cursor._restart();
      repair._clear();
    } else if (reason === wire.TRIMMED && to) cursor._advance({ offset: to });
    const wanted = recoverable ? subscriptions._repaired(gap.patterns) : [];
    const repairing = wanted.length > 0 && repair._add(gap, wanted);
    tellGap(gap, repairing, !repairing && (!recoverable || wanted.length > 0));
  }

  /** @param {Gap} gap @param {boolean} repairing @param {boolean} lost */
  function tellGap(gap, repairing, lost) {
    const fate = { ...gap, repairing, lost };
    tell("delivery:gap", fate);
    if (lost) options.resync?.(fate);
  }

  /**
   * @param {string} pattern @param {number | null} from @param {number | null} to
   * @param {(topic: string, data: any, meta: EventMeta) => void} each
   * @returns {Promise<number | null>} where the next page begins
   */
  async function page(pattern, from, to, each) {
    const { events, next } = await connection._request(wire.REPLAY, { pattern, from, to });
    for (const event of events) each(.../** @type {[string, any, EventMeta]} */ (event));
    return next;
  }

  /** @param {string} pattern @param {{ from: number, to: number }} range */
  async function replay(pattern, { from, to }) {
    let count = 0;
    for (let next = /** @type {number | null} */ (from); next; ) {
      next = await page(pattern, next, to, (topic, data, meta) => {
        count++;
        deliver(topic, data, meta, (each) => each === pattern);
      });
    }
    return count;
  }

  /** @param {Job} job */
  function fetch(job) {
    const { gap, patterns, _nth } = job;
    return page(patterns[_nth], job.from, gap.to, (topic, data, meta) => {
      // What a stronger policy matches was not left out; what an earlier pattern matches has been brought.
      if (subscriptions._policy(topic) !== "drop" || patterns.slice(0, _nth).some((each) => matches(each, topic))) return;
      job.count++;
      deliver(topic, data, meta, (each) => patterns.includes(each));
    });
  }

  /** @param {Job} job */
  function repaired({ gap, patterns, count }) {
    const { from, to } = gap;
    told.missed -= count;
    if (count) tell("delivery:resumed", { ...cursor._resume(), repaired: { patterns, from, to, count } });
    // The gateway counts exactly. Without an offset, trimmed meanwhile, conflated, refused: what has not come, will not.
    const rest = /** @type {number} */ (gap.count) - count;
    if (rest > 0 && patterns.length === gap.patterns.length) tellGap({ ...gap, count: rest, recoverable: false }, false, true);
  }

  /** @param {Status} status */
  function takeStatus({ bus = told.bus, moving, ended = [], unauthorized }) {
    told.bus = bus;
    if (moving) {
      // Anywhere in the time given, so that the next gateway does not get everybody at once.
      connection._renew(moving.reason, Math.random() * moving.within_s * 1000);
      tell("connection:moving", moving);
    }
    for (const { pattern, error } of ended) tellRefusal(subscriptions._settled(pattern, fromWire(error)));
    if (unauthorized) tell("connection:unauthorized", fromWire(unauthorized));
    changed();
  }

  /**
   * The page was too slow for what came. Notices are still told; numbered events come again, because the cursor is behind
   * them; what has no number is lost, and counted.
   * @param {Message[]} discarded
   */
  function overflowed(discarded) {
    const notice = { state: "on", queued: 0, queued_bytes: 0, discarded: discarded.length, where: "browser" };
    tell("delivery:backpressure", notice);
    let count = 0;
    for (const [, name, [body, , meta]] of discarded) {
      if (name === wire.EVENT) count += cursor._resume() && meta.offset ? 0 : 1;
      else if (name === wire.GAP || name === wire.STATUS) takes[name](body);
    }
    if (count) {
      const patterns = Object.keys(state().subscriptions);
      takeGap({ patterns, from: null, to: null, count, bytes: null, reason: "overflow", recoverable: false });
    }
    connection._renew("the page is too slow");
  }

  function sync() {
    while (connection._state() === "up" && !syncTimer) {
      const record = subscriptions._outOfStep();
      if (!record) return;
      const waitMs = budget();
      if (waitMs) return syncAfter(waitMs);
      const { pattern } = record;
      connection._request(...subscriptions._request(record)).then(
        () => settle(pattern),
        (error) => settle(pattern, error),
      );
    }
  }

  /** @param {string} pattern @param {HeadgateError} [error] */
  function settle(pattern, error) {
    // The connection it was made on is gone; the next one starts from what is wanted.
    if (connection._state() !== "up" || error?.code === "disconnected") return;
    tellRefusal(subscriptions._settled(pattern, error));
    if (error?.retry) syncAfter(RETRY_MS * (0.5 + Math.random()));
    changed();
  }

  /** @param {number} delayMs */
  function syncAfter(delayMs) {
    syncTimer ??= setTimeout(() => {
      syncTimer = undefined;
      changed();
    }, delayMs);
  }

  /**
   * Something has changed: at the end of the present task's microtasks, so that changes that cancel out cost nothing, bring
   * subscriptions into step and tell.
   */
  function changed() {
    if (changeDue) return;
    changeDue = true;
    queueMicrotask(() => {
      changeDue = false;
      sync();
      for (const resolve of waiters.splice(0)) resolve();
      gate.trigger("state:change", state());
    });
  }

  /** @param {string} pattern @returns {Promise<void>} */
  async function subscribed(pattern) {
    for (;;) {
      const record = subscriptions._find(pattern);
      if (connection._state() === "closed" || !record?.overflow) throw disconnected({ pattern });
      if (record._standing === "refused") throw record._error;
      if (record._standing === "active") return;
      await new Promise((resolve) => waiters.push(resolve));
    }
  }

  /** @returns {State} */
  function state() {
    return {
      ...told,
      epoch: null,
      offset: null,
      ...cursor._resume(),
      connection: connection._state(),
      waiting: inbox._depth(),
      subscriptions: Object.fromEntries(subscriptions._wanted().map(({ pattern, _standing }) => [pattern, _standing])),
    };
  }

  return {
    _connection: connection,
    _subscribed: subscribed,
    _state: state,
    _replay: replay,
    _refresh: refresh,

    /** The handlers of a pattern are now these. @param {string} pattern @param {SubscribeOptions[]} wishes @param {SubscribeOptions} [added] */
    _handlersChanged(pattern, wishes, added) {
      if (connection._state() === "closed") return;
      subscriptions._want(pattern, wishes, added);
      if (!wishes[0]) cursor._pasts.delete(pattern);
      if (added?.since) cursor._expect(pattern, added.since);
      changed();
    },

    /** No timer and no listener is left. */
    _close() {
      connection._close();
      unwatchPage();
      clearTimeout(syncTimer);
      repair._clear();
      inbox._close();
    },
  };
}
