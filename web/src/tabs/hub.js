/**
 * The hub: what a gateway is to one client, to all tabs of a group, over one connection. No I/O.
 *
 * In: `join`, `ask`, `acknowledge`, `part` and `leave` of tabs; `arrived`, `lost` and `refused` of the one connection. Out: messages to tabs, requests
 * to the gateway, `greeting` for its CONNECT. It runs in the leading tab.
 *
 * Each tab has its own session, patterns and position, and one rule: an event goes to a tab if it matches one of
 * the tab's patterns and its offset is above the position that the tab has named. A tab that names a position joins if nothing after that position is missing
 * here, for any of its patterns; else it learns that it is `behind`, and catches up on its own connection. So the hub has nothing to
 * know of replays, repairs and lost logs that the gateway knows better.
 *
 * A tab may have WINDOW messages that it has not acknowledged. Beyond that it is `stalled`: nothing is sent and nothing is kept for it but
 * the latest messages, kept for all. When it goes on, it gets the rest of them, or is `behind`.
 *
 * All tabs share the gateway's limits for one client: a tab without places for all its patterns is notified (`full`), and has nothing here
 * until it joins again. Their other requests go at the rate that the gateway takes.
 *
 * Every subscription has the policy `catch_up`: a full queue at the gateway must not lose one tab's events for another's policy. A tab that wants another
 * one does not come here.
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
 * @property {() => void} connect a tab needs the connection: `greeting` will be asked, then `arrived`, `lost` or `refused` is called
 * @property {(reason: string, inS: number) => void} move the gateway is about to stop: call `moved` within that time
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

/** Messages and characters that a tab may have and not have acknowledged. */
export const WINDOW = 256;
const WINDOW_CHARACTERS = 2 ** 20;
/** How far the first position of a new hub may lie below the highest of the tabs, in offsets. A tab that lags more catches up alone. */
const REACH = 1000;
/** Remembered epochs, once the lane is in another. */
const MOST_LEFT = 16;
/** What a tab wants at the gateway, whatever it wants here. */
const WISHES = { repair: false };
/** How long a request of a tab's may wait for its turn: less than a tab waits for its answer. */
const PATIENCE_MS = 2000;

/**
 * `away`: it has patterns, and no lane from here. `stalled`: it has WINDOW messages to acknowledge.
 * @type {Record<SessionState, Partial<Record<Step, SessionState>>>}
 */
export const SESSION = {
  away: { join: "joining", part: "away" },
  joining: { join: "joining", welcome: "live", part: "away" },
  live: { join: "joining", stall: "stalled", part: "away" },
  stalled: { join: "joining", resume: "live", part: "away" },
};

/** One tab's. @extends {Machine<SessionState, Step>} */
class Session extends Machine {
  /** Pattern → the offset after which the tab gets its events. @type {Map<string, number>} */
  patterns = new Map();
  /** The position that it joins from. @type {Position | undefined} */
  resume;
  /** It has everything up to here. */
  from = -1;
  /** Characters of each message that it has not acknowledged. @type {number[]} */
  unacknowledged = [];
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

  /** Whether the tab is to get an event of these patterns. @param {string[]} patterns @param {number} offset */
  wants(patterns, offset) {
    return patterns.some((pattern) => offset > (this.patterns.get(pattern) ?? Infinity));
  }
}

/** Return an error as it is on the wire. @param {HeadgateError} error */
const wireOf = ({ code, message, retry, parts }) => ({ code, message, retry, ...parts });

export class Hub {
  #owner;
  #window;
  #position = new LogPosition();
  #recent = new Recent();
  /** @type {Map<string, Session>} by tab */
  #sessions = new Map();
  /** Patterns that sessions have, each with how many. @type {Map<string, number>} */
  #counts = new Map();
  /** The same, to find by a topic. @type {PatternIndex<string>} */
  #index = new PatternIndex();
  /** Pattern → the offset after which the gateway sends all of its events on this lane. @type {Map<string, number>} */
  #since = new Map();
  /** The same of patterns that were acknowledged in another epoch than the lane's: word of it is on its way. @type {Map<string, number>} */
  #ahead = new Map();
  /** Epochs that the lane has left. @type {Set<string>} */
  #left = new Set();
  #subscriptions = createSubscriptions();
  #requests;
  #changed;
  /** The welcome of the present connection. @type {Welcome | undefined} */
  #welcome;
  /** The gateway's. @type {Limits} */
  #limits = {};
  /** The latest refusal of each pattern, as the gateway sent it. @type {Map<string, any>} */
  #refusals = new Map();
  /** The gateway's latest word on its link to Redis. @type {"up" | "down"} */
  #bus = "up";

  /** @param {HubOwner} owner @param {number} [window] messages */
  constructor(owner, window = WINDOW) {
    this.#owner = owner;
    this.#window = window;
    const { changed, watch } = createChanges();
    watch(() => this.#bringIntoStep());
    this.#changed = changed;
    const connection = { isUp: () => Boolean(this.#welcome), request: this.#subscribeAtGateway };
    this.#requests = createRequests({ subscriptions: this.#subscriptions, connection, acknowledged() {}, tell() {}, changed });
  }

  // Tabs.

  /**
   * A tab wants a lane. @param {string} tab
   * @param {{ resume?: Position, subscriptions: { pattern: string }[] }} wish without `resume`: from now on
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
    const places = Object.entries(placesOf([...new Set([...this.#counts.keys(), ...wanted])]));
    if (!places.every(([name, count]) => count <= (this.#limits[LIMITS[name]] ?? Infinity))) return this.#full(session);
    for (const pattern of wanted) this.#acquire(session, pattern, -1);
    for (const pattern of [...session.patterns.keys()]) if (!wanted.has(pattern)) this.#release(session, pattern);
    if (!this.#welcome) this.#owner.connect();
    this.#changed();
  }

  /** A tab wants no lane for now: it connects again, or by itself. Its patterns stay, so that nothing of them is missing when it joins. @param {string} tab */
  part(tab) {
    this.#sessions.get(tab)?.take("part");
  }

  /** A tab has more patterns than there is room for, and connects by itself. @param {string} tab */
  drop(tab) {
    this.part(tab);
    for (const pattern of this.#sessions.get(tab)?.patterns.keys() ?? []) this.#release(/** @type {Session} */ (this.#sessions.get(tab)), pattern);
    this.#changed();
  }

  /** A tab is gone. @param {string} tab */
  leave(tab) {
    const session = this.#sessions.get(tab);
    if (!session) return;
    for (const pattern of [...session.patterns.keys()]) this.#release(session, pattern);
    this.#sessions.delete(tab);
    this.#changed();
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

  /** Return the auth of CONNECT, without the token. */
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
    // It may have settled, or come to where a tab joins from.
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

  /** The connection to a gateway that was about to stop has been left. @param {string} reason */
  moved(reason) {
    for (const session of this.#in("live")) this.#send(session, STATUS, [{ moving: { reason, within_s: 0 } }]);
    for (const session of this.#sessions.values()) session.take("part");
    this.#disconnected();
  }

  // From here on private.

  /** @param {...SessionState} states */
  #in(...states) {
    return [...this.#sessions.values()].filter((session) => session.is(...states));
  }

  /** The first position of a hub: the lowest of the tabs in the newest log, except those that lag far. */
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
    // A gateway that welcomes has its link to Redis, or reports its loss next.
    this.#bus = "up";
    this.#limits = camelCase(welcome.limits);
    this.#requests.limit(this.#limits);
    this.#subscriptions.limit(this.#limits);
    for (const { pattern, error } of welcome.subscriptions) if (error) this.#refuse(pattern, error);
    this.#subscriptions.welcome(welcome.subscriptions);
    const base = this.#position.offset;
    if (epoch !== this.#position.epoch) this.#turned(epoch);
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
    const { epoch, offset } = this.#position;
    this.#position.take(GAP, [gap]);
    const turns = reason === ROLLED_BACK || reason === LOG_LOST;
    for (const session of this.#in("live", "stalled")) {
      // The gateway must report to the tab what it has ahead of this lane, or lacks.
      if (turns || !to) {
        if (session.is("stalled") || session.from > offset) this.#behind(session);
        else this.#send(session, GAP, [{ ...gap, patterns: turns ? [...session.patterns.keys()] : session.of(gap.patterns) }]);
      } else if (to > session.from && session.is("live")) this.#sendGap(session, gap);
    }
    if (turns) {
      for (const pattern of this.#since.keys()) this.#since.set(pattern, -1);
      this.#turned(epoch);
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
    if (epoch !== this.#position.epoch) this.#turned(epoch);
    for (const session of this.#in("live", "stalled")) {
      // The line to where the tab stands may have ended below that.
      if (settled && epoch !== cursor.epoch && (session.is("stalled") || session.from > offset)) this.#behind(session);
      else if (session.is("live") && cursor.offset >= session.from) this.#send(session, CURSOR, [cursor]);
    }
  }

  /** @param {any} status */
  #status({ moving, ended = [], ...status }) {
    if (moving) this.#owner.move(moving.reason, moving.within_s);
    this.#bus = status.bus ?? this.#bus;
    // A stalled tab hears of the bus when it goes on; the rest ends the connection, which it hears of too. Ahead of what ends: a tab
    // with new grants asks again for what was refused before.
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

  /** @param {any} message the last one to each */
  #down(message) {
    for (const session of this.#in("joining", "live", "stalled")) {
      this.#post(session, message);
      session.take("part");
    }
    this.#disconnected();
  }

  #disconnected() {
    this.#welcome = undefined;
    // A CONNECT that resumes carries them, and receives everything after its position.
    for (const pattern of this.#ahead.keys()) this.#since.delete(pattern);
    this.#ahead.clear();
    this.#subscriptions.disconnect();
    this.#requests.clear();
  }

  /** The patterns of a session that counts them. @param {Session} session @param {string} pattern @param {number} start */
  #acquire(session, pattern, start) {
    const had = session.patterns.get(pattern);
    session.patterns.set(pattern, Math.min(start, had ?? Infinity));
    if (had !== undefined) return;
    const count = this.#counts.get(pattern) ?? 0;
    this.#counts.set(pattern, count + 1);
    if (!count) {
      this.#index.add(pattern.split("."), pattern);
      this.#subscriptions.acquire(pattern, WISHES);
    } else this.#subscriptions.find(pattern)?.offer("retry");
  }

  /** @param {Session} session @param {string} pattern */
  #release(session, pattern) {
    if (!session.patterns.delete(pattern)) return;
    const count = /** @type {number} */ (this.#counts.get(pattern)) - 1;
    if (count) return this.#counts.set(pattern, count);
    this.#counts.delete(pattern);
    this.#since.delete(pattern);
    this.#ahead.delete(pattern);
    this.#refusals.delete(pattern);
    this.#index.delete(pattern.split("."));
    this.#subscriptions.release(pattern, WISHES);
  }

  /** @param {string} name @param {any} body */
  #subscribeAtGateway = async (name, body) => {
    const { error, offset, epoch } = await this.#owner.request(name, body);
    if (error) {
      this.#refuse(body.pattern, error);
      throw fromWire(error);
    }
    this.#ahead.delete(body.pattern);
    if (name === UNSUBSCRIBE) this.#since.delete(body.pattern);
    else if (epoch === this.#position.epoch) this.#since.set(body.pattern, offset);
    else if (this.#left.has(epoch)) this.#since.set(body.pattern, this.#position.offset);
    else {
      this.#since.set(body.pattern, Infinity);
      this.#ahead.set(body.pattern, offset);
    }
  };

  /** The gateway refuses a pattern, which a tab may have given up since. @param {string} pattern @param {any} error */
  #refuse(pattern, error) {
    if (this.#counts.has(pattern)) this.#refusals.set(pattern, error);
  }

  /** The lane's epoch is another. @param {string} was */
  #turned(was) {
    this.#left.add(was);
    this.#left.delete(this.#position.epoch);
    if (this.#left.size > MOST_LEFT) this.#left.delete(/** @type {string} */ (this.#left.values().next().value));
    for (const [pattern, offset] of this.#ahead) this.#since.set(pattern, offset);
    this.#ahead.clear();
  }

  /** Due requests, and tabs that wait for their answers. */
  #bringIntoStep() {
    this.#requests.send();
    if (!this.#welcome || !this.#position.settled) return;
    for (const session of this.#in("joining")) this.#admit(session);
    for (const session of this.#in("live", "stalled")) session.asks = session.asks.filter((ask) => !this.#answer(session, ask));
  }

  /** Return how the gateway has answered for a pattern: undefined: not yet. @param {string} pattern @returns {SubscribeResult | undefined} */
  #result(pattern) {
    const subscription = this.#subscriptions.find(pattern);
    if (subscription?.is("active")) return { pattern, ok: true };
    if (subscription?.is("refused")) return { pattern, ok: false, error: this.#refusals.get(pattern) };
    // A tab asks again by itself, and its other patterns do not wait.
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

  /** Return whether the gateway has answered. @param {Session} session @param {{ id: number, pattern: string }} ask */
  #answer(session, { id, pattern }) {
    // It has been unsubscribed since.
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
    try {
      const turn = this.#requests.turn(PATIENCE_MS);
      if (turn) await turn;
      reply = await this.#owner.request(name, body);
    } catch (/** @type {any} */ error) {
      // Refused before it was sent. Anything else has no code, and no answer.
      if (error.code) reply = { ok: false, error: wireOf(error) };
    }
    this.#reply(session, id, reply);
  }

  /** @param {Session} session @param {number} id @param {any} reply undefined: there was none */
  #reply(session, id, reply) {
    this.#post(session, { type: REPLY, id, reply });
  }

  /** A stalled tab goes on. @param {Session} session */
  #goOn(session) {
    if (session.from < this.#recent.floor) return this.#behind(session);
    session.take("resume");
    this.#send(session, STATUS, [{ bus: this.#bus }]);
    this.#catchUp(session);
  }

  /** Send a tab what it has not had of the latest messages. @param {Session} session */
  #catchUp(session) {
    for (const { offset, gap, topic, text, meta } of this.#recent.behind(session.from)) {
      if (!session.is("live")) return;
      if (gap) this.#sendGap(session, gap);
      else if (session.wants(this.#index.match(topic), offset)) this.#send(session, EVENT, [topic, { ...meta, replayed: true }], text, offset);
    }
    const cursor = this.#position.toResume();
    if (cursor && session.is("live") && cursor.offset >= session.from) this.#send(session, CURSOR, [cursor]);
  }

  /** Send the part of a numbered gap that the tab has not had, if it is of one of the tab's patterns. @param {Session} session @param {any} gap */
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

  /** There is no room for all of a tab's patterns. @param {Session} session */
  #full(session) {
    this.#post(session, { type: BEHIND, full: true });
    this.drop(session.tab);
  }

  /** Send a message of the lane. @param {Session} session @param {string} name @param {any[]} args @param {string} [text] data of an event @param {number} [offset] */
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
