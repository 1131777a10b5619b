/**
 * The session: the exchange between one gate and its gateway, over any number of connections. It composes the parts.
 *
 * In: calls of the gate; which patterns have handlers. Out: calls of the gate's handlers, lifecycle events, requests. A message takes the path connection →
 * inbox → `takes`, gaps or cursor → delivery → gate. A handler takes the path gate → own topics → subscriptions → requests → connection.
 *
 * Each part is made from the parts above it. Those that call back (cursor, connection) get their callees last.
 *
 * @import { ConnectionState, Status } from "../connection/connection-state.js"
 * @import { ConnectionOptions } from "../connection/connection.js"
 * @import { Backpressure, EventMeta, Gap, Limits, Position, Status as WireStatus, Welcome } from "../language/protocol.js"
 * @import { SubscriptionState, Wishes } from "../subscriptions/subscription.js"
 * @import { Standing } from "./cursor.js"
 * @import { Fate } from "./gaps.js"
 *
 * @typedef {object} SessionOnlyOptions
 * @property {number} [inboxLimit] messages that may wait for a busy page, default 10000; with that many it disconnects until it has caught up
 * @property {Record<string, any>} [auth] additional fields of CONNECT's auth object
 * @property {Position} [resume] the position where an earlier page of this user stopped, from its `state`
 * @property {(gap: Gap & Fate) => void} [resync] called when events are lost
 * @typedef {ConnectionOptions & SessionOnlyOptions} SessionOptions
 *
 * @typedef {object} Handlers the part of the gate that a session uses (dispatcher.js)
 * @property {(name: string, ...args: any[]) => unknown} trigger a lifecycle event
 * @property {(name: string) => void} _call the handlers of exactly this name, without arguments
 * @property {(name: string) => boolean} _heard whether the name of a lifecycle event has handlers
 * @property {(topic: string, data: any, describe: (pattern: string) => any, admits: (pattern: string) => boolean, alias: string) => number} dispatch
 *   an event; returns the number of handlers that ran
 * @property {(error: unknown, name: string) => void} _handlerFailed
 * @property {Set<{ _takeOwn: (names: string[], describe: (pattern: string) => any) => void }>} _loads
 * @property {Set<{ _regranted: () => void }>} _rooms
 *
 * @typedef {{ session: string | null, user: string | null, limits: Limits, bus: "up" | "down" }} Facts what the gateway has reported about this client and
 *   itself; the session is null until the first welcome
 *
 * @typedef {object} State
 * @property {Status} status the state of the connection (connection-state.js)
 * @property {ConnectionState} connection
 * @property {Standing} position where the client stands in the log: live, catching_up, … (cursor.js)
 * @property {"up" | "down"} bus the gateway's link to Redis
 * @property {string | null} session
 * @property {string | null} user
 * @property {string | null} epoch
 * @property {number | null} offset
 * @property {Record<string, SubscriptionState>} subscriptions pattern → requested, active, refused, … (subscription.js)
 * @property {Limits} limits
 * @property {number} received events for which handlers were called
 * @property {number} waiting messages not yet dispatched
 * @property {number} gaps
 * @property {number} missed events of those gaps that were not repaired, as far as their number is known
 */
import { createChanges } from "../base/changes.js";
import { coarseOf } from "../connection/connection-state.js";
import { createConnection } from "../connection/connection.js";
import { fromWire } from "../language/errors.js";
import { createCursor } from "./cursor.js";
import { createDelivery } from "./delivery.js";
import { createGaps } from "./gaps.js";
import { createInbox } from "./inbox.js";
import { createNewest } from "./newest.js";
import { createNotices } from "./notices.js";
import { createOwnTopics } from "../subscriptions/own-topics.js";
import { watchPage } from "../connection/page.js";
import { HANDLED, UPSTREAM } from "../language/protocol.js";
import { createReplays } from "./replays.js";
import { createRequests } from "../subscriptions/requests.js";
import { createStandings } from "./standings.js";
import { createSubscriptions } from "../subscriptions/subscriptions.js";

/** Lifecycle events that report a change of the status and of the state. */
const STATUS_CHANGE = "status:change";
const STATE_CHANGE = "state:change";

/** @param {Handlers} gate @param {string} address origin and namespace @param {SessionOptions} options */
export function createSession(gate, address, options) {
  /** @type {Facts} */
  const facts = { session: null, user: null, limits: {}, bus: "up" };
  const counts = { received: 0, gaps: 0, missed: 0 };
  /** Unreported changes of the status. @type {{ status: Status, previous: Status, reason: string }[]} */
  const moves = [];
  /** Patterns with changed subscriptions. @type {Set<string>} */
  const stirred = new Set();
  /** @type {(() => void) | undefined} */
  let unwatchPage;
  const changed = createChanges(reportChanges);

  // The wishes of the page.
  const replays = createReplays(
    (pattern) => {
      subscriptions.rewind(pattern, []);
      gaps.take({ patterns: [pattern], from: null, to: null, count: null, bytes: 0, reason: UPSTREAM, recoverable: false });
    },
    (pattern) => subscriptions.followed(pattern),
  );
  const subscriptions = createSubscriptions((pattern) => stirred.add(pattern), missing);
  const own = createOwnTopics(subscriptions, replays);
  const tell = createNotices(gate, own.named, () => facts.session, changed);

  // To the gateway.
  const connection = createConnection(address, /** @type {any} */ (options));
  const requests = createRequests({ subscriptions, connection, acknowledged, tell, changed });
  const standings = createStandings(subscriptions, own, connection);

  // From the gateway, in the order of a message.
  const cursor = createCursor(options.resume, replays);
  const { deliver, handled, leaveOut } = createDelivery(gate, cursor, own);
  /** @type {(...event: Parameters<typeof deliver>) => void} */
  const receive = (topic, data, meta, admits) => {
    if (deliver(topic, data, meta, admits)) counts.received++;
  };
  const newest = createNewest(subscriptions, receive, tell);
  const gaps = createGaps({ deliver, counts, cursor, replays, subscriptions, connection, requests, tell });
  const takes = {
    /** The cursor moves before the handlers are called, so that a handler that throws or disconnects does not make the event come again. */
    event(/** @type {string} */ topic, /** @type {any} */ data, meta = /** @type {EventMeta} */ ({})) {
      const isMissed = meta.replayed && /** @type {number} */ (meta.offset) > (cursor.position()?.offset ?? 0);
      const admits = gaps.admit(topic, meta);
      if (admits) receive(topic, data, meta, (pattern) => admits(pattern) && !(isMissed && newest.holds(pattern, topic, data, meta)));
    },
    welcome(/** @type {Welcome} */ message) {
      const { epoch, offset, limits, subscriptions: results } = message;
      // Before any part of it counts.
      if (!(epoch && offset >= 0 && limits && results.map)) throw TypeError(`epoch ${epoch}, offset ${offset}`);
      // A gateway that welcomes a client has its link to Redis, or reports its loss next.
      status({ bus: "up" });
      own.welcome(message.own);
      const was = cursor.position()?.epoch;
      if (cursor.welcome(message)) welcomed(message);
      if (cursor.position()?.epoch !== was) gaps.doubt();
      for (const each of results) if (each.ok) acknowledged(each, offset, epoch, true);
    },
    cursor: gaps.follow,
    gap(/** @type {Gap} */ gap) {
      // Before anything later.
      newest.flush();
      gaps.take(gap);
    },
    backpressure: (/** @type {Backpressure} */ notice) => tell("delivery:backpressure", { ...notice, where: "gateway" }),
    status,
    // A lost answer is not reported, because the gateway shows the operator who asked that there is none.
    handled: (/** @type {{ ask: number, offset: number }} */ { ask, offset }) => connection.request(HANDLED, { ask, ...handled(offset) }).catch(() => {}),
    presence: (/** @type {any} */ notice) => gate.trigger("presence:notice", notice),
  };
  const inbox = createInbox(gate, /** @type {number} */ (options.inboxLimit), takes, connection, tell);

  cursor.watch((isLive) => {
    connection.stands(isLive);
    if (isLive) newest.flush();
    changed();
  });
  connection.serve({
    busy: () => inbox.depth() > 0,
    greeting,
    received: (...message) => inbox.put(message),
    down() {
      requests.clear();
      subscriptions.disconnect();
    },
    tell,
    changed,
    moved(change) {
      moves.push(change);
      for (const pattern of standings.awaited()) stirred.add(pattern);
      changed();
    },
    refresh,
  });

  /** A welcome was due. If its connection has ended since it arrived, its events still count, but its subscriptions do not. @param {Welcome} welcome */
  function welcomed(welcome) {
    const { session, user = null, limits, resumed, epoch, offset } = welcome;
    Object.assign(facts, { session, user, limits });
    requests.limit(limits);
    subscriptions.limit(limits);
    if (!connection.welcomed(cursor.state() === "live")) {
      // The later messages of the connection still move the position, past events that these subscriptions miss.
      for (const { pattern, error } of welcome.subscriptions) if (error?.retry) subscriptions.end(pattern, fromWire(error));
      return;
    }
    const refusals = subscriptions.welcome(welcome.subscriptions);
    tell("connection:up", welcome);
    for (const refusal of refusals) tell("delivery:error", refusal);
    if (resumed) tell("delivery:resumed", { epoch, offset });
  }

  /** The gateway reports a change of itself, or of the client's grants. @param {WireStatus} notice */
  function status({ bus = facts.bus, moving, ended = [], unauthorized, granted, refresh }) {
    facts.bus = bus;
    if (moving) {
      // At a random moment, so that the next gateway does not get all clients at once.
      connection.move(moving.reason, Math.random() * moving.withinS * 1000);
      tell("connection:moving", moving);
    }
    // Before the ended ones, which must not be requested again.
    if (granted) retry(subscriptions.refused());
    for (const { pattern, error } of ended) tell("delivery:error", subscriptions.end(pattern, fromWire(error)));
    if (refresh) connection.renew();
    tell("connection:unauthorized", unauthorized && fromWire(unauthorized));
    changed();
  }

  function reportChanges() {
    requests.send();
    const patterns = own.named([...stirred]);
    stirred.clear();
    standings.check(patterns, (pattern) => gate._call(`subscription:${pattern}`));
    tellState();
  }

  function greeting() {
    const resume = cursor.resume();
    // Replays are asked for again once the connection is up, because one CONNECT cannot carry a position and a replay.
    replays.rewind(subscriptions.rewind, (pattern) => subscriptions.find(pattern)?.followed, resume);
    // A new page that continues where another one stopped wants the past for all its patterns.
    return { ...options.auth, resume, subscriptions: subscriptions.connect(resume && facts.session, resume) };
  }

  /**
   * A subscription gets no events for now. It asks for them when it is active again.
   * @param {string} pattern @param {boolean} followed whether its handlers have everything up to the client's position
   */
  function missing(pattern, followed) {
    const position = cursor.position();
    if (!followed) replays.interrupt(pattern);
    else if (position) subscriptions.rewind(pattern, replays.miss(pattern, position, cursor.seen()));
  }

  /**
   * @param {import("../language/protocol.js").SubscribeResult} result @param {number} [offset] the newest of the log @param {string} [epoch]
   * @param {boolean} [isFirst] whether nothing came before it
   */
  function acknowledged({ pattern, after }, offset, epoch, isFirst) {
    // In another epoch the same offset may be one that the log has lost.
    if (epoch === cursor.position()?.epoch) epoch = undefined;
    else after = undefined;
    // Only the acknowledgement of the last request ends all replays.
    replays.acknowledge(pattern, offset, epoch, isFirst, after, !subscriptions.find(pattern)?.replays.length);
  }

  /**
   * Use another token, and ask again for subscriptions that were refused.
   * @param {string | null} [given] default: the token of the source
   */
  async function refresh(given) {
    // Without a connection, the next CONNECT asks the source.
    const token = given ?? (connection.isUp() ? await connection.nextToken() : undefined);
    // Only those of before: until the answer, the gateway reports patterns that the new token no longer grants, which must not be requested again.
    const before = subscriptions.refused();
    await connection.refresh(token, typeof given === "string");
    retry(before);
  }

  /** The client may have other grants. Ask again for what was refused. @param {import("../subscriptions/subscription.js").Subscription[]} refused */
  function retry(refused) {
    for (const each of refused) each.offer("retry");
    for (const room of gate._rooms) room._regranted();
    changed();
  }

  function tellState() {
    for (const change of moves.splice(0)) gate.trigger(STATUS_CHANGE, change);
    if (gate._heard(STATE_CHANGE)) gate.trigger(STATE_CHANGE, state());
  }

  /** @returns {State} */
  function state() {
    const { epoch = null, offset = null } = cursor.position() ?? {};
    return {
      ...facts,
      ...counts,
      epoch,
      // A later page resumes here, so held events, which handlers have not had yet, must lie above it.
      offset: offset && Math.min(offset, newest.upTo()),
      position: cursor.state(),
      status: connection.status(),
      connection: coarseOf(connection.status()),
      waiting: inbox.depth(),
      subscriptions: Object.fromEntries(subscriptions.wanted().flatMap(({ pattern }) => own.named([pattern]).map((name) => [name, standings.state(name)]))),
    };
  }

  return {
    connection,
    standings,
    state,
    tellState,
    leaveOut,
    position: () => (gaps.isReading() ? undefined : cursor.position()),
    wired: own.wired,
    replay: (/** @type {string} */ pattern, /** @type {import("./gaps.js").Range} */ range) => gaps.replay(own.wired(pattern), range),
    refresh,

    /** Connect. Before that there is no timer and no listener, so a gate that was never opened costs nothing. */
    open() {
      if (!connection.isClosed()) unwatchPage ??= watchPage(connection.wake, connection.pause, connection.offline);
      connection.open();
    },

    /** Return the gateway's limits. */
    limits: () => facts.limits,

    /** Send a request to the gateway in its turn, unless it was aborted by then. @param {string} name @param {any} body @param {AbortSignal} [signal] @returns {Promise<any>} rejected with HeadgateError */
    request(name, body, signal) {
      const send = () => {
        signal?.throwIfAborted();
        return connection.request(name, body.topic ? { ...body, topic: own.wired(body.topic) } : body);
      };
      // It is sent at once if possible, because the page may end with this task.
      const turn = connection.isUp() && requests.turn(body.ephemeral ? 0 : /** @type {number} */ (options.requestTimeoutMs));
      return turn ? turn.then(send) : send();
    },

    /** A pattern gets a handler. @param {string} pattern @param {Wishes} wishes */
    handlerComes(pattern, wishes) {
      if (connection.isClosed()) return;
      own.comes(pattern, wishes);
      changed();
    },

    /** A pattern has lost a handler. @param {string} pattern @param {Wishes} wishes that it had */
    handlerLeft(pattern, wishes) {
      if (connection.isClosed()) return;
      own.left(pattern, wishes);
      stirred.add(pattern);
      changed();
    },

    /** No timer and no listener is left. */
    close() {
      connection.close();
      unwatchPage?.();
      gaps.clear();
      inbox.close();
    },
  };
}
