/**
 * The session: what goes on between one gate and its gateway, over however many connections.
 *
 * In: messages from the connection, through the inbox; which patterns have handlers. Out: calls of the gate's handlers,
 * lifecycle events, requests. Order: everything from the gateway is dispatched in the order of arrival; a gap is told before
 * anything later.
 *
 * The inbox is empty whenever a connection is attempted (connection-state.js), so what waits in it always belongs to one
 * connection and begins with its welcome. That is why the cursor can never pass an event that was not dispatched: events
 * follow the welcome that says where they begin, and a CONNECT resumes from what was dispatched.
 *
 * @import { SubscribeOptions } from "./gate.js"
 * @import { ConnectionOptions } from "./connection.js"
 * @import { ConnectionState } from "./connection-state.js"
 * @import { Dispatcher } from "./dispatcher.js"
 * @import { HeadgateError } from "./errors.js"
 * @import { Fate } from "./gaps.js"
 * @import { EventMeta, Gap, Limits, Position, Status, Welcome } from "./protocol.js"
 * @import { Refusal } from "./subscriptions.js"
 *
 * @typedef {object} SessionOnlyOptions
 * @property {number} [inboxLimit] messages that may wait for a busy page, default 10000; beyond that it disconnects until it has caught up
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
 * @typedef {[name: string, args: any[]]} Message
 */
import { createBudget } from "./budget.js";
import { createConnection } from "./connection.js";
import { createCursor } from "./cursor.js";
import { report } from "./dispatcher.js";
import { disconnected, fromWire } from "./errors.js";
import { createGaps } from "./gaps.js";
import { createInbox } from "./inbox.js";
import { watchPage } from "./page.js";
import { createSubscriptions } from "./subscriptions.js";

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
  };
  /** @type {ReturnType<typeof createBudget>} */
  let budget;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let syncTimer;
  let changeDue = false;
  /** @type {((nothing?: any) => void)[]} who waits for a change */
  const waiters = [];
  /** The present CONNECT asked to resume. */
  let resuming = false;
  /** The inbox was full, and has not been empty since. */
  let overflowing = false;

  const inbox = createInbox(options.inboxLimit ?? 10_000, take, { full: overflowed, empty: drained });
  const connection = createConnection(address, options, {
    busy: () => inbox.depth() > 0,
    greeting,
    received: (...message) => inbox.put(message),
    down() {
      clearTimeout(syncTimer);
      syncTimer = undefined;
      subscriptions.down();
    },
    tell,
    changed,
    refresh: () => refresh(),
  });
  const gaps = createGaps({ cursor, subscriptions, request: connection.request, waitMs: () => budget(), deliver, tell, resync: options.resync });
  const unwatchPage = watchPage(connection.wake, connection.pause);
  if (options.resume) cursor.advance(options.resume);

  function greeting() {
    cursor.forget();
    const resume = cursor.resume();
    resuming = !!resume;
    // Asked for again once the connection is up: a position and a past do not go together in one CONNECT.
    for (const [pattern, { since }] of cursor.pasts) subscriptions.rewind(pattern, since);
    // A new page that goes on where another stopped wants the past for all that it has.
    return { ...options.auth, resume, subscriptions: subscriptions.connecting(resuming && told.session) };
  }

  /**
   * Put another token in force, and ask again for what was refused.
   * @param {string} [given] else the source is asked
   */
  async function refresh(given) {
    // Without a connection the next CONNECT asks the source by itself.
    const token = given ?? (connection.isUp() ? await connection.nextToken() : undefined);
    // What the new token no longer grants is told meanwhile, and must not be asked for.
    const refused = subscriptions.refused();
    await connection.refresh(token, given !== undefined);
    refused.forEach(subscriptions.again);
    changed();
  }

  /** What to do with each message. Anything else is one of a later protocol. @type {Record<string, (...args: any[]) => void>} */
  const takes = {
    event(topic, data, meta = {}) {
      const admits = cursor.admit(meta);
      if (admits && deliver(topic, data, meta, admits)) told.received++;
    },
    welcome: welcomed,
    cursor: cursor.advance,
    gap: (/** @type {Gap} */ gap) => gaps.take(gap),
    backpressure: (notice) => tell("delivery:backpressure", { ...notice, where: "gateway" }),
    status: takeStatus,
  };

  /** @param {Message} message */
  function take([name, args]) {
    try {
      if (Object.hasOwn(takes, name)) takes[name](...args);
    } catch (error) {
      gate._handlerFailed(error, name);
    }
  }

  /** @param {string} name @param {any} what @param {any} [more] */
  function tell(name, what, ...more) {
    const { error = what } = what;
    // What nobody listens for, the console shall show; but not each attempt of a client that was in before.
    const expected = name === "connection:refused" && error.retry && told.session;
    if (error.code && !expected && !gate._heard(name)) report(error);
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
    const at = cursor.resume();
    // Resumed: what lies between our cursor and `offset` is about to come. Not resumed, same log: so is the rest, behind a
    // gap. Another log, or one that has lost its end: it starts there, behind a gap. Only a new client starts at the head for
    // certain.
    if (!resuming) cursor.advance(welcome);
    else if (!resumed && (epoch !== at?.epoch || offset < at.offset)) cursor.announce(welcome);
    Object.assign(told, { session, user, limits, bus: "up" });
    budget = createBudget(limits);
    // The connection may be gone since this arrived: then its events still count, and its subscriptions do not.
    if (!connection.welcomed()) return;
    const refused = subscriptions.welcomed(welcome.subscriptions);
    tell("connection:up", welcome);
    refused.forEach(tellRefusal);
    if (resumed) tell("delivery:resumed", { epoch, offset });
  }

  /** @param {Refusal | null | undefined} refusal */
  function tellRefusal(refusal) {
    if (refusal) tell("delivery:error", refusal);
  }

  /** @param {Status} status */
  function takeStatus({ bus = told.bus, moving, ended = [], unauthorized }) {
    told.bus = bus;
    if (moving) {
      // Anywhere in the time given, so that the next gateway does not get everybody at once.
      connection.move(moving.reason, Math.random() * moving.within_s * 1000);
      tell("connection:moving", moving);
    }
    for (const { pattern, error } of ended) tellRefusal(subscriptions.settled(pattern, fromWire(error)));
    if (unauthorized) tell("connection:unauthorized", fromWire(unauthorized));
    changed();
  }

  /** The page is too slow for what comes. What has come is dispatched; the rest comes again when that is done. */
  function overflowed() {
    if (overflowing) return;
    overflowing = true;
    connection.overflowed("the page is too slow");
    tellBackpressure("on");
  }

  function drained() {
    if (overflowing) {
      overflowing = false;
      tellBackpressure("off");
    }
    connection.drained();
  }

  /** @param {"on" | "off"} state */
  function tellBackpressure(state) {
    tell("delivery:backpressure", { state, queued: inbox.depth(), queued_bytes: 0, discarded: 0, where: "browser" });
  }

  function sync() {
    while (connection.isUp() && !syncTimer) {
      const record = subscriptions.outOfStep();
      if (!record) return;
      const waitMs = budget();
      if (waitMs) return syncAfter(waitMs);
      const { pattern } = record;
      connection.request(...subscriptions.request(record)).then(
        () => settle(pattern),
        (error) => settle(pattern, error),
      );
    }
  }

  /** @param {string} pattern @param {HeadgateError} [error] */
  function settle(pattern, error) {
    // The connection it was made on is gone; the next one starts from what is wanted.
    if (!connection.isUp() || error?.code === "disconnected") return;
    tellRefusal(subscriptions.settled(pattern, error));
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

  /** Wait until something has changed. */
  function change() {
    return new Promise((resolve) => waiters.push(resolve));
  }

  /** Return why a pattern will not be active by itself, if so. @param {string} pattern @returns {HeadgateError | undefined} */
  function hopeless(pattern) {
    const record = subscriptions.find(pattern);
    if (connection.state() === "closed" || !record?.overflow) return disconnected({ pattern });
    return connection.refusal() ?? (record.standing === "refused" ? record.error : undefined);
  }

  /** @returns {State} */
  function state() {
    return {
      ...told,
      ...gaps.counts,
      epoch: null,
      offset: null,
      ...cursor.shown(),
      connection: connection.state(),
      waiting: inbox.depth(),
      subscriptions: Object.fromEntries(subscriptions.wanted().map(({ pattern, standing }) => [pattern, standing])),
    };
  }

  return {
    connection,
    state,
    replay: gaps.replay,
    refresh,

    /** Wait until a pattern is active. @param {string} pattern @returns {Promise<void>} rejected when it will not be by itself */
    async subscribed(pattern) {
      for (;;) {
        const error = hopeless(pattern);
        if (error) throw error;
        if (subscriptions.find(pattern)?.standing === "active") return;
        await change();
      }
    },

    /** Wait until a pattern will not be active any more by itself, and return why. @param {string} pattern */
    async ended(pattern) {
      for (;;) {
        const error = hopeless(pattern);
        if (error) return error;
        await change();
      }
    },

    /** The handlers of a pattern are now these. @param {string} pattern @param {SubscribeOptions[]} wishes @param {SubscribeOptions} [added] */
    handlersChanged(pattern, wishes, added) {
      if (connection.state() === "closed") return;
      subscriptions.want(pattern, wishes, added);
      if (!wishes[0]) cursor.pasts.delete(pattern);
      if (added?.since) cursor.expect(pattern, added.since);
      changed();
    },

    /** No timer and no listener is left. */
    close() {
      connection.close();
      unwatchPage();
      clearTimeout(syncTimer);
      gaps.clear();
      inbox.close();
    },
  };
}
