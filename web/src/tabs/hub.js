/**
 * The hub acts as the gateway for all tabs of a group, over one connection. It runs in the leading tab. No I/O.
 *
 * In: `join`, `ask`, `acknowledge`, `part`, `drop` and `leave` of tabs; `arrived`, `lost`, `refused` and `moved` of the connection. Out: messages to tabs,
 * requests to the gateway, `greeting` for its CONNECT.
 *
 * Each tab has its own session, patterns and position. An event goes to a tab if it matches one of the tab's patterns and its offset is above the tab's
 * position. A tab with a position joins if the hub has everything after that position, for all its patterns. Otherwise it is `behind`, and catches up on
 * its own connection. So the hub need not handle replays, repairs and lost logs, which the gateway does better.
 *
 * A tab may have WINDOW unacknowledged messages. Beyond that it is `stalled`. Nothing is sent to it, and nothing is kept for it except the latest
 * messages, which are kept once for all tabs. When it continues, it gets the rest of them, or is `behind`.
 *
 * All tabs share the gateway's limits for one client. If there are no places for all patterns of a tab, the tab is notified (`full`) and leaves the hub
 * until it joins again. Other requests of the tabs go at the rate that the gateway allows.
 *
 * Every subscription has the policy `catch_up`, because a full queue at the gateway must not lose events of one tab for the policy of another. A tab that
 * wants another policy uses its own connection.
 *
 * @import { HeadgateError } from "../language/errors.js"
 * @import { Limits, Position, SubscribeResult, Welcome } from "../language/protocol.js"
 * @import { Entry } from "./recent.js"
 * @typedef {"away" | "joining" | "live" | "stalled"} SessionState
 * @typedef {"join" | "welcome" | "stall" | "resume" | "part"} Step
 *
 * @typedef {object} HubOwner
 * @property {(tab: string, message: any) => void} post in order, to each tab
 * @property {(name: string, body: object) => Promise<any>} request of the gateway; rejected without a connection
 * @property {(reason: string, inS: number) => void} move the gateway is about to stop; call `moved` within that time, once no request is `unanswered`
 */
import { createChanges } from "../base/changes.js";
import { Machine } from "../base/machine.js";
import { fromWire } from "../language/errors.js";
import { camelCase } from "../language/field-names.js";
import { PatternIndex } from "../language/pattern-index.js";
import { CURSOR, EVENT, GAP, LOG_LOST, ROLLED_BACK, STATUS, SUBSCRIBE, UNSUBSCRIBE, WELCOME } from "../language/protocol.js";
import { LIMITS, placesOf } from "../subscriptions/places.js";
import { createRequests } from "../subscriptions/requests.js";
import { createSubscriptions } from "../subscriptions/subscriptions.js";
import { LogPosition } from "./log-position.js";
import { BEHIND, LANE, LOST, REFUSED, REPLY, WELCOMED } from "./messages.js";
import { Recent } from "./recent.js";

/** The most unacknowledged messages and characters of a tab. */
export const WINDOW = 256;
const WINDOW_CHARACTERS = 2 ** 20;
/** How many offsets the first position of a new hub may lie below the highest position of the tabs. A tab further behind catches up alone. */
const REACH = 1000;
/** The wishes of all subscriptions at the gateway. */
const WISHES = { repair: false };
/** How long a request of a tab may wait for its turn, less than a tab waits for its answer. */
const PATIENCE_MS = 2000;

/**
 * `away`: the tab has patterns, but the hub does not carry its lane. `stalled`: it has WINDOW unacknowledged messages.
 * @type {Record<SessionState, Partial<Record<Step, SessionState>>>}
 */
export const SESSION = {
  away: { join: "joining", part: "away" },
  joining: { join: "joining", welcome: "live", part: "away" },
  live: { join: "joining", stall: "stalled", part: "away" },
  stalled: { join: "joining", resume: "live", part: "away" },
};

/** The session of one tab. @extends {Machine<SessionState, Step>} */
class Session extends Machine {
  /** Pattern → the offset after which the tab gets its events. @type {Map<string, number>} */
  patterns = new Map();
  /** The position from which it joins. @type {Position | undefined} */
  resume;
  /** The offset up to which the tab has everything. */
  from = -1;
  /** The length of each unacknowledged message. @type {number[]} */
  unacknowledged = [];
  /** The sum of these lengths. */
  characters = 0;
  /** Subscriptions that wait for the gateway. @type {{ id: number, pattern: string }[]} */
  asks = [];

  /** @param {string} tab */
  constructor(tab) {
    super(SESSION, "away");
    this.tab = tab;
  }

  /** Return those of some patterns that the tab has. @param {string[]} patterns */
  of(patterns) {
    return patterns.filter((pattern) => this.patterns.has(pattern));
  }

  /** Whether the tab gets an event that matches these patterns. @param {string[]} patterns @param {number} offset */
  wants(patterns, offset) {
    return patterns.some((pattern) => offset > (this.patterns.get(pattern) ?? Infinity));
  }
}

/** Return an error as on the wire. @param {HeadgateError} error */
const wireOf = ({ code, message, retry, parts }) => ({ code, message, retry, ...parts });

export class Hub {
  #owner;
  #window;
  #position = new LogPosition();
  #recent = new Recent();
  /** @type {Map<string, Session>} by tab */
  #sessions = new Map();
  /** The patterns of the sessions, to find by topic. @type {PatternIndex<string>} */
  #index = new PatternIndex();
  /** How many requests of tabs have no answer yet, or wait for their turn. */
  unanswered = 0;
  /** Pattern → the offset after which the gateway sends all its events over the connection. @type {Map<string, number>} */
  #since = new Map();
  /** The same for patterns that were acknowledged in a later epoch, whose announcement is on its way. @type {Map<string, number>} */
  #ahead = new Map();
  #subscriptions = createSubscriptions();
  #requests;
  #changed;
  /** The welcome of the present connection. @type {Welcome | undefined} */
  #welcome;
  /** The gateway's limits. @type {Limits} */
  #limits = {};
  /** The latest refusal of each pattern, as the gateway sent it. @type {Map<string, any>} */
  #refusals = new Map();
  /** The gateway's link to Redis. @type {"up" | "down"} */
  #bus = "up";

  /** @param {HubOwner} owner @param {number} [window] messages */
  constructor(owner, window = WINDOW) {
    this.#owner = owner;
    this.#window = window;
    this.#changed = createChanges(() => this.#bringIntoStep());
    const connection = { isUp: () => Boolean(this.#welcome), request: this.#subscribeAtGateway };
    this.#requests = createRequests({ subscriptions: this.#subscriptions, connection, acknowledged() {}, tell() {}, changed: this.#changed });
  }

  // Tabs.

  /**
   * A tab joins. @param {string} tab
   * @param {{ resume?: Position, subscriptions: { pattern: string }[] }} wish without `resume`, it gets events from now on
   */
  join(tab, { resume, subscriptions }) {
    const session = this.#sessions.get(tab) ?? new Session(tab);
    this.#sessions.set(tab, session);
    session.take("join");
    session.resume = resume;
    session.unacknowledged = [];
    session.characters = 0;
    session.asks = [];
    const wanted = new Set(subscriptions.map(({ pattern }) => pattern));
    const places = Object.entries(placesOf([...new Set([...this.#subscriptions.wanted().map(({ pattern }) => pattern), ...wanted])]));
    if (!places.every(([name, count]) => count <= (this.#limits[LIMITS[name]] ?? Infinity))) return this.#full(session);
    for (const pattern of wanted) this.#acquire(session, pattern, -1);
    for (const pattern of [...session.patterns.keys()]) if (!wanted.has(pattern)) this.#release(session, pattern);
    this.#changed();
  }

  /** A tab needs no lane for now. Its patterns stay subscribed, so that nothing is missing when it joins again. @param {string} tab */
  part(tab) {
    this.#sessions.get(tab)?.take("part");
  }

  /** There are no places for the patterns of a tab, which uses its own connection. @param {string} tab */
  drop(tab) {
    const session = this.#sessions.get(tab);
    if (!session) return;
    session.take("part");
    for (const pattern of session.patterns.keys()) this.#release(session, pattern);
    this.#changed();
  }

  /** A tab is gone. @param {string} tab */
  leave(tab) {
    this.drop(tab);
    this.#sessions.delete(tab);
  }

  /** A tab has taken messages. @param {string} tab @param {number} count */
  acknowledge(tab, count) {
    const session = this.#sessions.get(tab);
    for (const characters of session?.unacknowledged.splice(0, count) ?? []) /** @type {Session} */ (session).characters -= characters;
    if (session?.is("stalled") && session.unacknowledged.length <= this.#window / 2) this.#goOn(session);
  }

  /** A tab makes a request. @param {string} tab @param {number} id @param {string} name @param {any} body */
  ask(tab, id, name, body) {
    const session = this.#sessions.get(tab);
    if (!session || session.is("away")) return;
    if (name === SUBSCRIBE) {
      this.#acquire(session, body.pattern, Infinity);
      session.asks.push({ id, pattern: body.pattern });
      this.#changed();
    } else if (name === UNSUBSCRIBE) {
      this.#release(session, body.pattern);
      this.#reply(session, id, { ok: true, pattern: body.pattern });
      this.#changed();
    } else this.#forward(session, id, name, body);
  }

  // The connection.

  /** Return the auth object of CONNECT, without the token. */
  greeting() {
    const resume = this.#position.toResume() ?? this.#least();
    return { resume, subscriptions: this.#subscriptions.connect(this.#position.settled) };
  }

  /** @param {string} name @param {any[]} args */
  arrived(name, args) {
    if (name === WELCOME) return this.#welcomed(args[0]);
    if (name === EVENT) this.#event(args);
    else if (name === GAP) this.#gap(args[0]);
    else if (name === CURSOR) this.#cursor(args[0]);
    else if (name === STATUS) this.#status(args[0]);
    else for (const session of this.#in("live")) this.#send(session, name, args);
    // The position may have settled, or reached that of a joining tab.
    if (this.#in("joining").length) this.#changed();
  }

  /** @param {string} reason @param {number} [retryAfterS] */
  lost(reason, retryAfterS) {
    this.#down({ type: LOST, reason, retryAfterS });
  }

  /** @param {any} error of the wire */
  refused(error) {
    this.#down({ type: REFUSED, error });
  }

  /** The connection to a gateway about to stop was left. @param {string} reason */
  moved(reason) {
    for (const session of this.#in("live")) this.#send(session, STATUS, [{ moving: { reason, within_s: 0 } }]);
    for (const session of this.#sessions.values()) session.take("part");
    this.#disconnected();
  }

  /** @param {...SessionState} states */
  #in(...states) {
    return [...this.#sessions.values()].filter((session) => session.is(...states));
  }

  /** Return the first position of a hub, the lowest of the tabs in the newest log without those that are far behind. */
  #least() {
    const positions = this.#in("joining").flatMap(({ resume }) => resume ?? []);
    const { epoch } = positions.at(-1) ?? {};
    const offsets = positions.filter((each) => each.epoch === epoch).map(({ offset }) => offset);
    const highest = Math.max(...offsets);
    return epoch === undefined ? undefined : { epoch, offset: Math.min(...offsets.filter((offset) => offset >= highest - REACH)) };
  }

  /** @param {Welcome} welcome */
  #welcomed(welcome) {
    const { epoch, offset: had, settled } = this.#position;
    this.#position.take(WELCOME, [welcome]);
    this.#welcome = welcome;
    // A gateway that welcomes a client has its link to Redis, or reports its loss next.
    this.#bus = "up";
    this.#limits = camelCase(welcome.limits);
    this.#requests.limit(this.#limits);
    this.#subscriptions.limit(this.#limits);
    for (const { pattern, error } of welcome.subscriptions) if (error) this.#refuse(pattern, error);
    this.#subscriptions.welcome(welcome.subscriptions);
    const base = this.#position.offset;
    if (epoch !== this.#position.epoch) this.#turned();
    if (!(settled && this.#position.settled && base === had)) {
      this.#since.clear();
      this.#ahead.clear();
      this.#recent.begin(this.#position.settled ? base : Infinity);
    }
    for (const { pattern, ok } of welcome.subscriptions) if (ok && !this.#since.has(pattern)) this.#since.set(pattern, base);
    this.#changed();
  }

  /** @param {any[]} args */
  #event([topic, data, meta = {}]) {
    const { offset } = meta;
    const wasSettled = this.#position.settled;
    const isNew = offset === undefined || !wasSettled || offset > this.#position.offset;
    this.#position.take(EVENT, [topic, data, meta]);
    if (!isNew) return;
    const text = JSON.stringify(data);
    const patterns = this.#index.match(topic);
    const numbered = this.#position.settled && offset !== undefined;
    if (numbered && !wasSettled) this.#recent.begin(offset - 1);
    if (numbered) this.#recent.put({ offset, topic, text, meta });
    for (const session of this.#in("live")) {
      if (offset === undefined ? session.wants(patterns, Infinity) : offset > session.from && session.wants(patterns, offset)) this.#send(session, EVENT, [topic, meta], text, offset);
    }
  }

  /** @param {any} gap */
  #gap(gap) {
    const { reason, from, to } = gap;
    const { offset } = this.#position;
    this.#position.take(GAP, [gap]);
    const turns = reason === ROLLED_BACK || reason === LOG_LOST;
    for (const session of this.#in("live", "stalled")) {
      // A tab ahead of the hub's position must learn from the gateway what it lacks.
      if (turns || !to) {
        if (session.is("stalled") || session.from > offset) this.#behind(session);
        else this.#send(session, GAP, [{ ...gap, patterns: turns ? [...session.patterns.keys()] : session.of(gap.patterns) }]);
      } else if (to > session.from && session.is("live")) this.#sendGap(session, gap);
    }
    if (turns) {
      for (const pattern of this.#since.keys()) this.#since.set(pattern, -1);
      this.#turned();
      for (const session of this.#in("live")) {
        session.from = -1;
        for (const pattern of session.patterns.keys()) session.patterns.set(pattern, -1);
      }
      this.#recent.begin(this.#position.settled ? this.#position.offset : Infinity);
    } else if (to) this.#recent.put({ offset: to, gap, topic: "", text: "" });
    else this.#recent.begin(from ?? this.#position.offset);
  }

  /** @param {Position} cursor */
  #cursor(cursor) {
    const { epoch, offset, settled } = this.#position;
    this.#position.take(CURSOR, [cursor]);
    if (!settled) this.#recent.begin(this.#position.offset);
    if (epoch !== this.#position.epoch) this.#turned();
    for (const session of this.#in("live", "stalled")) {
      // The log may have lost the end at which the tab stands.
      if (settled && epoch !== cursor.epoch && (session.is("stalled") || session.from > offset)) this.#behind(session);
      else if (session.is("live") && cursor.offset >= session.from) this.#send(session, CURSOR, [cursor]);
    }
  }

  /** @param {any} status */
  #status({ moving, ended = [], ...status }) {
    if (moving) this.#owner.move(moving.reason, moving.within_s);
    this.#bus = status.bus ?? this.#bus;
    // A stalled tab gets the state of the bus when it continues; the rest ends the connection, of which it is notified too. This comes before `ended`, because a tab
    // with new grants requests refused patterns again.
    if (Object.keys(status).length) for (const session of this.#in("live")) this.#send(session, STATUS, [status]);
    for (const { pattern, error } of ended) {
      this.#refuse(pattern, error);
      this.#subscriptions.end(pattern, fromWire(error));
      for (const session of this.#sessions.values()) {
        if (!session.patterns.has(pattern)) continue;
        this.#release(session, pattern);
        if (session.is("live")) this.#send(session, STATUS, [{ ended: [{ pattern, error }] }]);
        else if (session.is("stalled")) this.#behind(session);
      }
    }
  }

  /** @param {any} message the last one to each tab */
  #down(message) {
    for (const session of this.#in("joining", "live", "stalled")) {
      this.#post(session, message);
      session.take("part");
    }
    this.#disconnected();
  }

  #disconnected() {
    this.#welcome = undefined;
    // A CONNECT that resumes carries these patterns, and gets everything after its position.
    for (const pattern of this.#ahead.keys()) this.#since.delete(pattern);
    this.#ahead.clear();
    this.#subscriptions.disconnect();
    this.#requests.clear();
  }

  /** A session gets a pattern. @param {Session} session @param {string} pattern @param {number} start */
  #acquire(session, pattern, start) {
    const had = session.patterns.get(pattern);
    session.patterns.set(pattern, Math.min(start, had ?? Infinity));
    if (had !== undefined) return;
    const subscription = this.#subscriptions.find(pattern);
    if (subscription?.overflow) subscription.offer("retry");
    else this.#index.add(pattern.split("."), pattern);
    this.#subscriptions.acquire(pattern, WISHES);
  }

  /** @param {Session} session @param {string} pattern */
  #release(session, pattern) {
    // Other sessions may have it too.
    if (!session.patterns.delete(pattern) || this.#subscriptions.release(pattern, WISHES)) return;
    this.#since.delete(pattern);
    this.#ahead.delete(pattern);
    this.#refusals.delete(pattern);
    this.#index.delete(pattern.split("."));
  }

  /** @param {string} name @param {any} body */
  #subscribeAtGateway = async (name, body) => {
    const { epoch: before } = this.#position;
    const { error, offset, epoch } = await this.#owner.request(name, body);
    if (error) {
      this.#refuse(body.pattern, error);
      throw fromWire(error);
    }
    this.#ahead.delete(body.pattern);
    if (name === UNSUBSCRIBE) this.#since.delete(body.pattern);
    else if (epoch === this.#position.epoch) this.#since.set(body.pattern, offset);
    else if (epoch === before) this.#since.set(body.pattern, this.#position.offset);
    else {
      this.#since.set(body.pattern, Infinity);
      this.#ahead.set(body.pattern, offset);
    }
  };

  /** The gateway refuses a pattern, which the tabs may have released since. @param {string} pattern @param {any} error */
  #refuse(pattern, error) {
    if (this.#subscriptions.find(pattern)?.overflow) this.#refusals.set(pattern, error);
  }

  /** The epoch has changed. */
  #turned() {
    for (const [pattern, offset] of this.#ahead) this.#since.set(pattern, offset);
    this.#ahead.clear();
  }

  /** Send due requests, and answer the tabs that wait for them. */
  #bringIntoStep() {
    this.#requests.send();
    if (!this.#welcome || !this.#position.settled) return;
    for (const session of this.#in("joining")) this.#admit(session);
    for (const session of this.#in("live", "stalled")) session.asks = session.asks.filter((ask) => !this.#answer(session, ask));
  }

  /** Return the gateway's answer for a pattern; undefined: there is none yet. @param {string} pattern @returns {SubscribeResult | undefined} */
  #result(pattern) {
    const subscription = this.#subscriptions.find(pattern);
    if (subscription?.is("active")) return { pattern, ok: true };
    if (subscription?.is("refused")) return { pattern, ok: false, error: this.#refusals.get(pattern) };
    // The tab requests it again by itself, and its other patterns need not wait.
    if (subscription?.is("waiting", "retrying")) return { pattern, ok: false, error: wireOf(/** @type {HeadgateError} */ (subscription.error)) };
  }

  /** @param {Session} session */
  #admit(session) {
    const results = [...session.patterns.keys()].map((pattern) => this.#result(pattern));
    if (!results.every(Boolean)) return;
    const subscriptions = /** @type {SubscribeResult[]} */ (results);
    if ([...session.patterns.keys()].some((pattern) => this.#subscriptions.find(pattern)?.is("waiting"))) return this.#full(session);
    const active = subscriptions.filter(({ ok }) => ok).map(({ pattern }) => this.#since.get(pattern) ?? Infinity);
    const { epoch, offset } = this.#position;
    const welcome = /** @type {Welcome} */ (this.#welcome);
    const { resume } = session;
    if (resume && (resume.epoch !== epoch || resume.offset < Math.max(this.#recent.floor, ...active))) return this.#behind(session);
    const head = Math.max(offset, welcome.epoch === epoch ? welcome.offset : 0);
    session.from = resume ? resume.offset : head;
    for (const { pattern, ok } of subscriptions) {
      if (ok) session.patterns.set(pattern, resume ? -1 : session.from);
      else this.#release(session, pattern);
    }
    session.take("welcome");
    const from = resume ? { epoch, offset: resume.offset } : null;
    this.#post(session, { type: WELCOMED, welcome: { ...welcome, epoch, offset: head, resumed: resume ? true : null, from, subscriptions } });
    if (this.#bus === "down") this.#send(session, STATUS, [{ bus: "down" }]);
    if (resume) this.#catchUp(session);
  }

  /** Answer a subscription if the gateway has answered it. Return whether it has. @param {Session} session @param {{ id: number, pattern: string }} ask */
  #answer(session, { id, pattern }) {
    // The tab has unsubscribed it since.
    if (!session.patterns.has(pattern)) return true;
    const result = this.#result(pattern);
    if (!result) return false;
    if (!result.ok) {
      this.#release(session, pattern);
      this.#reply(session, id, result);
      return true;
    }
    const { epoch, offset } = this.#position;
    const start = /** @type {number} */ (session.patterns.get(pattern));
    if (start === Infinity) session.patterns.set(pattern, offset);
    this.#reply(session, id, { ok: true, pattern, epoch, offset });
    return true;
  }

  /** @param {Session} session @param {number} id @param {string} name @param {any} body */
  async #forward(session, id, name, body) {
    let reply;
    this.unanswered++;
    try {
      const turn = this.#requests.turn(body.ephemeral ? 0 : PATIENCE_MS);
      if (turn) await turn;
      // The connection may have ended in the meantime.
      reply = this.#welcome && (await this.#owner.request(name, body));
    } catch (/** @type {any} */ error) {
      // An error with a code means that the request was not sent. Otherwise there is no answer.
      if (error.code) reply = { ok: false, error: wireOf(error) };
    }
    this.unanswered--;
    this.#reply(session, id, reply);
  }

  /** @param {Session} session @param {number} id @param {any} reply undefined: there was none */
  #reply(session, id, reply) {
    this.#post(session, { type: REPLY, id, reply });
  }

  /** A stalled tab continues. @param {Session} session */
  #goOn(session) {
    if (session.from < this.#recent.floor) return this.#behind(session);
    session.take("resume");
    this.#send(session, STATUS, [{ bus: this.#bus }]);
    this.#catchUp(session);
  }

  /** Send a tab those of the latest messages that it has not had. @param {Session} session */
  #catchUp(session) {
    for (const { offset, gap, topic, text, meta } of this.#recent.behind(session.from)) {
      if (!session.is("live")) return;
      if (gap) this.#sendGap(session, gap);
      else if (session.wants(this.#index.match(topic), offset)) this.#send(session, EVENT, [topic, { ...meta, replayed: true }], text, offset);
    }
    const cursor = this.#position.toResume();
    if (cursor && session.is("live") && cursor.offset >= session.from) this.#send(session, CURSOR, [cursor]);
  }

  /** Send the part of a numbered gap that the tab has not had, if the gap concerns the tab's patterns. @param {Session} session @param {any} gap */
  #sendGap(session, gap) {
    const from = Math.max(gap.from ?? 0, session.from + 1);
    const patterns = session.of(gap.patterns);
    if (patterns.length) this.#send(session, GAP, [{ ...gap, patterns, from, count: gap.to - from + 1 }], "", gap.to);
  }

  /** @param {Session} session */
  #behind(session) {
    this.#post(session, { type: BEHIND });
    session.take("part");
  }

  /** There are no places for all patterns of a tab. @param {Session} session */
  #full(session) {
    this.#post(session, { type: BEHIND, full: true });
    this.drop(session.tab);
  }

  /** Send a message of the gateway to a tab. @param {Session} session @param {string} name @param {any[]} args @param {string} [text] data of an event @param {number} [offset] */
  #send(session, name, args, text = "", offset = this.#position.offset) {
    session.unacknowledged.push(text.length);
    session.characters += text.length;
    this.#post(session, { type: LANE, name, args, ...(name === EVENT && { text }) });
    if (session.unacknowledged.length < this.#window && session.characters < WINDOW_CHARACTERS) return;
    session.take("stall");
    session.from = Math.max(session.from, offset);
  }

  /** @param {Session} session @param {any} message */
  #post(session, message) {
    this.#owner.post(session.tab, message);
  }
}
