/**
 * The lane: the transport of one tab. The session above it sees one connection. Its carrier is the hub of the leading tab, or a connection of this tab.
 *
 * In: the calls of a transport (transport.js has the promises); from the group, reports of leaders; messages of the carrier. Out: the calls of the transport's
 * owner.
 *
 * In `shared` the hub of the leading tab carries the lane, and in `own` a plain connection does. A lane begins in `own` when CONNECT asks for a replay or
 * a policy, when the hub lacks events after its position or places for its patterns, or when no tab leads. A live lane changes to `own` to ask for a
 * replay, to be present in a topic (the gateway counts connections, and notices itself when one breaks), or for the policy `drop` or `latest` (which
 * concerns a queue at the gateway, and all tabs share that of the shared connection). There it gets everything from the gateway. A lane that has
 * everything, waits for nothing, is present nowhere and has no such policy crosses to the hub at its position, and the session does not notice. It changes
 * to the next leader in the same way.
 *
 * @import { Overflow, Welcome } from "../language/protocol.js"
 * @import { Transport, TransportOwner } from "../transport/transport.js"
 * @typedef {"closed" | "greeting" | "joining" | "opening" | "own" | "crossing" | "shared" | "orphaned" | "parting"} LaneState
 * @typedef {"greet" | "join" | "open" | "arrive" | "cross" | "return" | "share" | "orphan" | "part" | "end"} Step
 *
 * @typedef {{ post: (message: any) => void, close: () => void }} Link to the hub
 * @typedef {object} LaneGroup
 * @property {(auth: any) => boolean} enter join the group of this user's tabs; false: this tab cannot share
 * @property {(wish: any, take: (message: any) => void) => Link | undefined} join join the leader's hub; undefined: no tab leads now
 * @property {number | undefined} window the hub's, if it differs from WINDOW
 * @property {number} connectTimeoutMs from the attempt to the arrival of the welcome
 * @property {() => void} rest leave the group until the next connection
 * @property {() => void} leave for good
 *
 * @typedef {{ name: string, body: any, timeoutMs: number, settle: (error: unknown, reply?: any) => void, sent: boolean }} Asked
 */
import { Machine } from "../base/machine.js";
import { startTimer } from "../base/timer.js";
import { CURSOR, EVENT, GAP, LOG_LOST, REFRESH, ROLLED_BACK, STATUS, SUBSCRIBE, UNSUBSCRIBE, WELCOME } from "../language/protocol.js";
import { isFull } from "../subscriptions/places.js";
import { WINDOW } from "./hub.js";
import { LogPosition } from "./log-position.js";
import { BEHIND, LANE, LEAVE, LOST, PROBE, REFUSED, REPLY, REQUEST, TOOK, WELCOMED } from "./messages.js";

/** How long a tab waits for a leader before it connects by itself. */
const LEADERLESS_MS = 3000;
/** Least time between two attempts to join the hub, so that a tab that lags behind can catch up. */
const CROSS_MS = 1000;
/** The same, if the hub has no places for the patterns of this tab. */
const FULL_MS = 30_000;
/** Reasons of gaps after which offsets belong to other events. */
const TURNS = [ROLLED_BACK, LOG_LOST];

/**
 * `greeting`: CONNECT's auth is being made · `joining`: a new connection of the session, through the hub, which has been asked · `opening`: the same, to
 * the gateway · `crossing`: own, and the hub has been asked · `orphaned`: it was shared, and no hub has accepted it yet · `parting`: it was shared, and
 * its own connection is being made.
 * @type {Record<LaneState, Partial<Record<Step, LaneState>>>}
 */
export const LANE_STATES = {
  closed: { greet: "greeting" },
  greeting: { join: "joining", open: "opening", end: "closed" },
  joining: { share: "shared", open: "opening", end: "closed" },
  opening: { arrive: "own", end: "closed" },
  own: { cross: "crossing", end: "closed" },
  crossing: { share: "shared", return: "own", end: "closed" },
  shared: { orphan: "orphaned", part: "parting", end: "closed" },
  orphaned: { share: "shared", part: "parting", end: "closed" },
  parting: { arrive: "own", end: "closed" },
};

/**
 * @param {TransportOwner} owner
 * @param {(owner: TransportOwner) => Transport} createPlain
 * @param {LaneGroup} group
 */
export function createLane(owner, createPlain, group) {
  const life = new Machine(LANE_STATES, "closed");
  let position = new LogPosition();
  /** CONNECT's auth of the session's present connection, with the latest token that the gateway has accepted. @type {any} */
  let auth = null;
  /** Acknowledged patterns with their policies; undefined: `catch_up`. @type {Map<string, Overflow | undefined>} */
  let patterns = new Map();
  /** @type {Link | undefined} */
  let link;
  /** Messages since the last acknowledgement to the hub. */
  let taken = 0;
  /** Topics in which this tab is present, or that it watches. @type {Set<string>} */
  const topics = new Set();
  /** Requests without an answer. @type {Map<number, Asked>} */
  let asked = new Map();
  let nth = 0;
  /** Own only: whether everything has come, requested replays included. */
  let isLevel = false;
  /** Own only: a live event or a cursor above this offset shows that everything has come. One at it may have been under way when a replay was requested. */
  let levelAbove = Infinity;
  /** Own only: the epoch of that offset. */
  let levelEpoch = "";
  let crossedMs = -Infinity;
  /** Counts connections of the session. */
  let generation = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const plain = createPlain({ greet: (send) => send(greeting()), arrived, lost, refused });

  // The session connects.

  function connect() {
    life.take("greet");
    const mine = ++generation;
    position = new LogPosition();
    patterns = new Map();
    owner.greet((/** @type {any} */ made) => {
      if (mine !== generation || !life.is("greeting")) return;
      auth = made;
      for (const { pattern, overflow } of made.subscriptions) patterns.set(pattern, overflow);
      const isOwn = made.subscriptions.some((/** @type {any} */ { since, overflow }) => since || overflow);
      if (group.enter(made) && !isOwn) {
        life.take("join");
        seek();
      } else open();
    });
  }

  function greeting() {
    return life.is("opening") ? auth : { ...auth, resume: position.toResume(), subscriptions: subscriptions() };
  }

  const subscriptions = () => [...patterns].map(([pattern, overflow]) => ({ pattern, overflow }));

  /** Join the hub, or wait until there is one. */
  function seek() {
    clearTimeout(timer);
    const { resume } = life.is("joining") ? auth : { resume: position.toResume() };
    taken = 0;
    /** @type {Link | undefined} */
    const mine = group.join({ resume, subscriptions: subscriptions() }, (message) => mine === link && received(message));
    link = mine;
    if (!mine) timer = setTimeout(alone, LEADERLESS_MS);
  }

  /** No tab leads, or the hub lacks what this one needs. */
  function alone() {
    if (life.is("joining")) open();
    else if (life.is("shared", "orphaned")) part();
    else if (life.is("crossing")) goBack();
  }

  function open() {
    unlink();
    life.take("open");
    plain.connect();
  }

  /** Continue on a connection of this tab. @param {boolean} [full] whether the hub has no places */
  function part(full) {
    unlink(full);
    // The position is unknown, so the session must resume.
    if (!position.settled) return end("the connection that the tabs share is gone");
    life.take("part");
    resend();
    timer = startTimer(() => end("timeout"), group.connectTimeoutMs);
    plain.connect();
  }

  function goBack() {
    unlink();
    life.take("return");
    sendAll();
  }

  /** Leave the hub. @param {boolean} [full] */
  function unlink(full) {
    clearTimeout(timer);
    link?.post({ type: LEAVE, full });
    link?.close();
    link = undefined;
  }

  // From the hub.

  /** @param {any} message */
  function received(message) {
    const { type, name, args, reply, id } = message;
    if (type === LANE) {
      tookOne();
      shared(name, name === EVENT ? [args[0], JSON.parse(message.text), args[1]] : args);
    } else if (type === REPLY) answered(id, reply);
    else if (type === WELCOMED) welcomed(message.welcome);
    else if (type === BEHIND) {
      if (message.full) crossedMs = performance.now() + FULL_MS;
      alone();
    }
    else if (life.is("crossing")) goBack();
    else if (type === LOST) end(message.reason, message.retryAfterS);
    else if (type === REFUSED) {
      // The leader's token was refused, and this tab may have another one.
      if (!message.error.retry && life.is("joining")) open();
      else refused(message.error);
    }
  }

  function tookOne() {
    if (++taken < (group.window ?? WINDOW) / 4) return;
    link?.post({ type: TOOK, count: taken });
    taken = 0;
  }

  /** @param {string} name @param {any[]} args */
  function shared(name, args) {
    const [first, , meta] = args;
    // Messages that came on the own connection while the hub accepted the lane come again.
    const end = name === EVENT ? meta.offset : name === GAP && !TURNS.includes(first.reason) ? first.to : undefined;
    if (position.settled && end !== null && end <= position.offset) return;
    pass(name, args);
  }

  /** @param {Welcome} welcome */
  function welcomed(welcome) {
    const begins = life.is("joining");
    if (life.is("crossing")) plain.disconnect();
    life.take("share");
    if (begins) pass(WELCOME, [welcome]);
    else tellEnded(welcome);
    sendAll();
  }

  // From the gateway.

  /** @param {string} name @param {any[]} args */
  function arrived(name, args) {
    if (life.is("closed", "shared", "orphaned")) return;
    if (name === WELCOME) return opened(args[0]);
    const [first, , meta] = args;
    if (life.is("crossing")) {
      // The hub delivers this event too, and it has no offset to recognise it by.
      if (name === EVENT && meta?.offset === undefined) return;
      // The hub may not have this notice yet, and would deliver it again.
      if ((name === GAP && TURNS.includes(first.reason)) || (name === CURSOR && first.epoch !== position.epoch)) goBack();
    }
    const { epoch } = position;
    pass(name, args);
    if (position.epoch !== epoch && epoch === levelEpoch) {
      // The log has lost its end, perhaps below that offset.
      levelEpoch = position.epoch;
      levelAbove = Math.min(levelAbove, position.offset);
    }
    if ((name === CURSOR ? first.offset : name === EVENT && !meta?.replayed ? meta?.offset : -1) > levelAbove) isLevel = true;
    else if (name === GAP && first.reason === LOG_LOST) isLevel = false;
    if (life.is("own")) cross();
  }

  /** @param {Welcome} welcome */
  function opened(welcome) {
    const begins = life.is("opening");
    clearTimeout(timer);
    levelAbove = welcome.offset - 1;
    levelEpoch = welcome.epoch;
    const asks = begins && auth.subscriptions.some((/** @type {any} */ { since }) => since);
    isLevel = !asks && (welcome.resumed === null || (welcome.resumed === true && /** @type {any} */ (welcome.from)?.offset >= welcome.offset));
    life.take("arrive");
    if (begins) pass(WELCOME, [welcome]);
    else {
      const { epoch } = position;
      position.take(WELCOME, [welcome]);
      // The session has its welcome already, so it gets the new epoch by a cursor. If events are lost, a gap follows.
      if (position.settled && position.epoch !== epoch) owner.arrived(CURSOR, [position.toResume()]);
      tellEnded(welcome);
    }
    sendAll();
    cross();
  }

  /** Report patterns that the gateway has refused when the carrier changed. @param {Welcome} welcome */
  function tellEnded({ subscriptions: results }) {
    const ended = results.filter(({ ok }) => !ok).map(({ pattern, error }) => ({ pattern, error }));
    if (ended.length) pass(STATUS, [{ ended }]);
  }

  /** Cross to the hub, if everything has come and nothing needs the own connection. */
  function cross() {
    if (!life.is("own") || !isLevel || !position.settled || asked.size || topics.size || [...patterns.values()].some(Boolean) || performance.now() - crossedMs < CROSS_MS) return;
    crossedMs = performance.now();
    life.take("cross");
    seek();
    if (!link) goBack();
  }

  /** @param {string} reason @param {number} [retryAfterS] */
  function lost(reason, retryAfterS) {
    if (!life.is("closed", "shared", "orphaned")) end(reason, retryAfterS);
  }

  /** @param {any} error of the wire */
  function refused(error) {
    const begins = life.is("joining", "opening");
    finish();
    if (!error.retry) group.rest();
    // The session connects again, and gets the refusal then.
    if (begins) owner.refused(error);
    else owner.lost(error.message);
  }

  // To the session.

  /** @param {string} name @param {any[]} args */
  function pass(name, args) {
    position.take(name, args);
    for (const { pattern } of (name === STATUS && args[0].ended) || []) patterns.delete(pattern);
    if (name === WELCOME) for (const { pattern, ok } of args[0].subscriptions) if (!ok) patterns.delete(pattern);
    owner.arrived(name, args);
  }

  /** @param {string} reason @param {number} [retryAfterS] */
  function end(reason, retryAfterS) {
    finish();
    owner.lost(reason, retryAfterS);
  }

  /** End this connection of the session. Nothing that comes from it counts after this. */
  function finish() {
    generation++;
    unlink();
    topics.clear();
    if (!life.offer("end")) return;
    plain.disconnect();
    const ended = asked;
    asked = new Map();
    for (const { settle } of ended.values()) settle(Error("the connection ended"));
  }

  // Requests.

  /** @param {string} name @param {any} body @param {number} timeoutMs @returns {Promise<any>} */
  function request(name, body, timeoutMs) {
    return new Promise((resolve, reject) => {
      if (life.is("closed", "greeting", "joining", "opening")) throw Error("there is no connection");
      const id = nth++;
      /** @param {unknown} error @param {any} [reply] */
      const settle = (error, reply) => {
        clearTimeout(deadline);
        asked.delete(id);
        if (error) return reject(error);
        note(name, body, reply);
        resolve(reply);
        cross();
      };
      const deadline = startTimer(() => settle(Error("no answer in time")), timeoutMs);
      asked.set(id, { name, body, timeoutMs, settle, sent: false });
      send(id);
    });
  }

  /** Send a request, if there is a carrier. Otherwise it waits for the next one. @param {number} id */
  function send(id) {
    const each = asked.get(id);
    if (!each || each.sent) return;
    const { name, body, timeoutMs, settle } = each;
    const asksForReplay = name === SUBSCRIBE && body.since;
    if (life.is("own")) {
      each.sent = true;
      if (asksForReplay) {
        isLevel = false;
        levelAbove = Infinity;
        levelEpoch = "";
      }
      // When the answer comes, the lane may have another carrier, and the request may have been sent again.
      plain.request(name, body, timeoutMs).then((reply) => asked.get(id) === each && settle(undefined, reply), (error) => asked.get(id) === each && life.is("own") && settle(error));
    } else if (life.is("shared")) {
      // Only a presence request has an `act`, and only a subscribe an `overflow`.
      if (asksForReplay || body.act || body.overflow) return part();
      each.sent = true;
      link?.post({ type: REQUEST, id, name, body });
    }
  }

  function sendAll() {
    for (const id of [...asked.keys()]) send(id);
  }

  /** The carrier has changed. Mark the requests that may be repeated as not sent. */
  function resend() {
    for (const each of [...asked.values()]) {
      if (each.sent && (each.name === "request" || each.body.ephemeral)) each.settle(Error("the connection ended"));
      else each.sent = false;
    }
  }

  /** @param {number} id @param {any} reply undefined: there was none */
  function answered(id, reply) {
    if (life.is("shared") && isFull(reply?.error)) {
      // A separate connection has all the places that the gateway allows a client.
      crossedMs = performance.now() + FULL_MS;
      return part(true);
    }
    asked.get(id)?.settle(reply ? undefined : Error("no answer"), reply);
  }

  /** @param {string} name @param {any} body @param {any} reply */
  function note(name, body, { ok, epoch, offset }) {
    if (body.act) topics[ok && body.act !== "leave" ? "add" : "delete"](body.topic);
    if (!ok) return;
    if (name === SUBSCRIBE) patterns.set(body.pattern, body.overflow);
    else if (name === UNSUBSCRIBE) patterns.delete(body.pattern);
    else if (name === REFRESH) auth = { ...auth, token: body.token };
    if (name === SUBSCRIBE && body.since) {
      levelAbove = offset;
      levelEpoch = epoch;
    }
  }

  return {
    connect,
    disconnect: finish,
    request,

    close() {
      plain.close();
      finish();
      group.leave();
    },

    probe(/** @type {number | undefined} */ spreadMs) {
      plain.probe(spreadMs);
      link?.post({ type: PROBE, spreadMs });
    },

    /** Return CONNECT's auth with the latest token, for the shared connection that this tab makes as the leader. */
    auth: () => auth,

    /** The leader is gone. */
    orphaned() {
      if (life.is("crossing")) goBack();
      else if (life.is("joining")) seek();
      else if (life.is("shared")) {
        unlink();
        if (!position.settled) return end("the tab that had the connection is gone");
        life.take("orphan");
        resend();
        seek();
      }
    },

    alone,

    /** There is a leader. */
    led() {
      if (life.is("joining", "orphaned")) seek();
      else cross();
    },
  };
}
