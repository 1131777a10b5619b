/**
 * The lane: the transport of one tab. The session above it sees one connection, carried by the leading tab, or by a connection of
 * this tab's own.
 *
 * In: the calls of a transport (transport.js has the promises); from the group, word of leaders; messages of the carrier. Out: the calls of
 * the transport's owner.
 *
 * `shared` is carried by the hub of the leading tab. `own` is a plain connection. A lane begins there when CONNECT asks for a replay, when the
 * hub does not have everything after its position or no room for its patterns, or when no tab leads; a live one goes there to ask for a replay, to be present in a topic (the
 * gateway counts connections, and notices itself when one breaks), or for the policy `drop` or `latest` (it is about a queue at the gateway, and that
 * of the shared connection is of all tabs). While it is there it gets everything from the gateway itself. A lane that has
 * everything, waits for nothing, is present nowhere and has no such policy goes to the hub, at its position: the
 * session does not notice. The same brings it to the next leader when one is gone.
 *
 * @import { Overflow, Welcome } from "../language/protocol.js"
 * @import { Transport, TransportOwner } from "../transport/transport.js"
 * @typedef {"closed" | "greeting" | "joining" | "opening" | "own" | "crossing" | "shared" | "orphaned" | "parting"} LaneState
 * @typedef {"greet" | "join" | "open" | "arrive" | "cross" | "return" | "share" | "orphan" | "part" | "end"} Step
 *
 * @typedef {{ post: (message: any) => void, close: () => void }} Link to the hub
 * @typedef {object} LaneGroup
 * @property {(auth: any) => boolean} enter join the group of this user's tabs; false: this tab cannot share
 * @property {(wish: any, take: (message: any) => void) => Link | undefined} join a lane from the leader; undefined: no tab leads now
 * @property {number | undefined} window the hub's, where it is another than WINDOW
 * @property {() => void} resign another tab should lead
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
import { BEHIND, LANE, LEAVE, LOST, REFUSED, REPLY, REQUEST, TOOK, WELCOMED } from "./messages.js";

/** How long a tab waits for one to lead before it connects by itself. */
const LEADERLESS_MS = 3000;
/** Least time between two attempts to join the hub. A lagging tab catches up with what arrives in between. */
const CROSS_MS = 1000;
/** The same, when the hub has no room for the patterns of this tab. */
const FULL_MS = 30_000;
/** Reasons of gaps after which positions have another meaning. */
const TURNS = [ROLLED_BACK, LOG_LOST];

/**
 * `greeting`: CONNECT's auth is being made · `joining`: the hub has been asked, for a new connection of the session · `opening`: the same,
 * of the gateway · `crossing`: own, and the hub has been asked · `orphaned`: it was shared, and no hub has taken it yet · `parting`: it
 * was shared, and its own connection is not there yet.
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
  /** CONNECT's auth of the session's present connection; its token is the latest that the gateway has taken. @type {any} */
  let auth = null;
  /** What the gateway has acknowledged; `catch_up` is undefined. @type {Map<string, Overflow | undefined>} */
  let patterns = new Map();
  /** @type {Link | undefined} */
  let link;
  /** Messages of the lane since the last acknowledgement to the hub. */
  let taken = 0;
  /** Topics in which this tab is present, or that it watches: only requests of presence have an `act`, and only a subscribe an `overflow`. @type {Set<string>} */
  const topics = new Set();
  /** Requests without an answer. @type {Map<number, Asked>} */
  let asked = new Map();
  let nth = 0;
  /** Own only: everything has come, the replays that were asked for too. */
  let isLevel = false;
  /** Own only: a live event or a cursor above this offset shows it. One at it may have been under way when a replay was asked for. */
  let levelAbove = Infinity;
  /** Own only: the epoch in which that offset is meant. */
  let levelEpoch = "";
  let crossedMs = -Infinity;
  /** Rises with each connection of the session. */
  let generation = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const plain = createPlain({ greet: (send) => send(greeting()), arrived, lost, refused });

  // The session's connection begins.

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

  /** Ask the hub, or wait until there is one. */
  function seek() {
    clearTimeout(timer);
    const { resume } = life.is("joining") ? auth : { resume: position.toResume() };
    taken = 0;
    /** @type {Link | undefined} */
    const mine = group.join({ resume, subscriptions: subscriptions() }, (message) => mine === link && heard(message));
    link = mine;
    if (!mine) timer = setTimeout(alone, LEADERLESS_MS);
  }

  /** No tab leads or will lead, or the hub does not have what this one needs. */
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

  /** Continue from here on a connection for this tab alone. @param {boolean} [full] the hub has no room */
  function part(full) {
    unlink(full);
    // Its position is unknown: the session resumes.
    if (!position.settled) return end("the connection that the tabs share is gone");
    life.take("part");
    resend();
    plain.connect();
  }

  function goBack() {
    unlink();
    life.take("return");
    sendAll();
  }

  /** Forget the hub. @param {boolean} [full] */
  function unlink(full) {
    clearTimeout(timer);
    link?.post({ type: LEAVE, full });
    link?.close();
    link = undefined;
  }

  // From the hub.

  /** @param {any} message */
  function heard(message) {
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
    else if (type === REFUSED) refused(message.error);
  }

  function tookOne() {
    if (++taken < (group.window ?? WINDOW) / 4) return;
    link?.post({ type: TOOK, count: taken });
    taken = 0;
  }

  /** @param {string} name @param {any[]} args */
  function shared(name, args) {
    const [first, , meta] = args;
    // What came on its own connection while the hub took it over comes again.
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
      // The hub delivers it too, and the two cannot be distinguished, so it is delivered at most once.
      if (name === EVENT && meta?.offset === undefined) return;
      // The hub may not have it yet, and would deliver it again.
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
    levelAbove = welcome.offset - 1;
    levelEpoch = welcome.epoch;
    const asks = begins && auth.subscriptions.some((/** @type {any} */ { since }) => since);
    isLevel = !asks && (welcome.resumed === null || (welcome.resumed === true && /** @type {any} */ (welcome.from)?.offset >= welcome.offset));
    life.take("arrive");
    if (begins) pass(WELCOME, [welcome]);
    else {
      const { epoch } = position;
      position.take(WELCOME, [welcome]);
      // The session has its welcome. It receives new events of this one; a gap follows that reports the loss.
      if (position.settled && position.epoch !== epoch) owner.arrived(CURSOR, [position.toResume()]);
      tellEnded(welcome);
    }
    sendAll();
    cross();
  }

  /** Patterns that the gateway has refused on the way to another carrier. @param {Welcome} welcome */
  function tellEnded({ subscriptions: results }) {
    const ended = results.filter(({ ok }) => !ok).map(({ pattern, error }) => ({ pattern, error }));
    if (ended.length) pass(STATUS, [{ ended }]);
  }

  /** Go to the hub, if everything has come. */
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
    if (!error.retry) group.resign();
    // The session connects again, and hears it then.
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

  /** Nothing of this connection counts any more. */
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

  /** Send a request, if there is a carrier now; else it waits for the next. @param {number} id */
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
      // The lane may have another carrier when the answer comes, and the request may be on its way again.
      plain.request(name, body, timeoutMs).then((reply) => asked.get(id) === each && settle(undefined, reply), (error) => asked.get(id) === each && life.is("own") && settle(error));
    } else if (life.is("shared")) {
      if (asksForReplay || body.act || body.overflow) return part();
      each.sent = true;
      link?.post({ type: REQUEST, id, name, body });
    }
  }

  function sendAll() {
    for (const id of [...asked.keys()]) send(id);
  }

  /** The carrier is another: ask again what can be asked twice. */
  function resend() {
    for (const each of [...asked.values()]) {
      if (each.sent && each.name === "request") each.settle(Error("the connection ended"));
      else each.sent = false;
    }
  }

  /** @param {number} id @param {any} reply undefined: there was none */
  function answered(id, reply) {
    if (life.is("shared") && isFull(reply?.error)) {
      // A separate connection has all the room that the gateway gives a client.
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
      finish();
      plain.close();
      group.leave();
    },

    probe(/** @type {number | undefined} */ spreadMs) {
      if (life.is("own", "crossing", "parting")) plain.probe(spreadMs);
    },

    /** Return CONNECT's auth with the latest token, for the connection that this tab makes for all. */
    auth: () => auth,

    /** The leader is gone. */
    orphaned() {
      if (life.is("crossing")) goBack();
      else if (life.is("joining")) seek();
      else if (life.is("shared")) {
        link?.close();
        link = undefined;
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
