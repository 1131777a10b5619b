/**
 * The members of a topic, shared by all rooms of a gate (room.js).
 *
 * In: the answers of the gateway to `enter`, `watch` and `page`; its notices, each the difference between two versions; beginnings and ends of
 * connections. Out: members by name, `member:join`, `member:leave` and `member:change` for each, `change` with a snapshot once for all changes of a turn.
 *
 * The set is read in parts while differences arrive. Parts and differences have versions of one copy at the gateway, so the later version counts. If a
 * difference does not begin at this page's version, comes from another copy, or is a `reset`, the set is read again. The known members stay until then,
 * and only differences are reported, so a reconnection alone reports nothing.
 *
 * @typedef {{ user: string, connections: number, since: number, meta: any }} Member `since` in milliseconds since 1970
 * @typedef {"waiting" | "loading" | "live" | "refused" | "closed"} PresenceStatus
 * @typedef {{ readonly members: readonly Member[], readonly status: PresenceStatus, readonly error: HeadgateError | null }} PresenceSnapshot
 * @typedef {[user: string, connections: number, since: number, meta: string | null]} WireMember
 * @typedef {{ topic: string, copy: string, version: number, base?: number, members: WireMember[], left?: string[], next?: string | null, reset?: boolean, ended?: any }} Notice
 */
import { delayAfterMs, reconnectDelayMs } from "../base/backoff.js";
import { createChanges } from "../base/changes.js";
import { Machine } from "../base/machine.js";
import { startTimer } from "../base/timer.js";
import { PRESENCE } from "../language/protocol.js";
import { Dispatcher, HeadgateError } from "../index.js";

/** Time before a set is read again after a reset or a missing difference, half to one and a half times as long, so that pages do not all ask at once. */
const RELOAD_MS = 250;

/**
 * `waiting`: there is no connection, or it is not time to ask again.
 * @type {Record<PresenceStatus, Partial<Record<"load" | "loaded" | "lose" | "refuse" | "close", PresenceStatus>>>}
 */
export const ROOM = {
  waiting: { load: "loading", lose: "waiting", refuse: "refused", close: "closed" },
  loading: { load: "loading", loaded: "live", lose: "waiting", refuse: "refused", close: "closed" },
  live: { load: "loading", lose: "waiting", refuse: "refused", close: "closed" },
  refused: { load: "loading", lose: "refused", close: "closed" },
  closed: {},
};

export class Members extends Dispatcher {
  /** Only its end removes its handlers (dispatcher.js). */
  _isPart = true;
  #gate;
  #topic;
  #forget;
  #life = new Machine(ROOM, "waiting");
  #uses = 0;
  #entering = false;
  /** @type {any} */
  #meta;
  /** The gateway's latest refusal. @type {HeadgateError | null} */
  error = null;
  /** @type {Map<string, Member>} */
  #members = new Map();
  /** The set being read, until it is complete. @type {Map<string, Member> | null} */
  #reading = null;
  /** Users that a difference has named while the set is read, with its version. @type {Map<string, number>} */
  #named = new Map();
  /** Differences that came before the first part. @type {Notice[]} */
  #early = [];
  #copy = "";
  #version = 0;
  /** Refusals in a row for a passing reason. */
  #failures = 0;
  /** Counts reads. An answer to an earlier one is too late. */
  #nth = 0;
  #wasRead = false;
  #isReading = false;
  /** Whether the set is read once more after the present read, because this user's `meta` has changed. */
  #again = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** @type {PresenceSnapshot} */
  snapshot = { members: [], status: "waiting", error: null };

  /** @param {import("../index.js").Gate} gate @param {string} topic @param {() => void} forget */
  constructor(gate, topic, forget) {
    super();
    this.#gate = gate;
    this.#topic = topic;
    this.#forget = forget;
    gate._rooms.add(this);
    if (gate.status === "closed") {
      this.#end();
      return;
    }
    this.listenTo(gate, {
      "presence:notice": (/** @type {Notice} */ notice) => notice.topic === gate._wired(topic) && this.#notice(notice),
      "connection:up": () => this.#load(),
      "connection:down": () => this.#lose(),
      "status:change": () => gate.status === "closed" && this.#end(),
    });
  }

  /** This user may have other grants. */
  _regranted() {
    if (this.#life.is("refused")) void this.#load();
  }

  get status() {
    return this.#life.state;
  }

  /** @param {string} user */
  get(user) {
    return this.#members.get(user);
  }

  /** Replace this user's `meta`. @param {any} meta */
  update(meta) {
    this.#meta = meta;
    this.#entering = true;
    this.#load();
  }

  /** A room is closed. Leave with the last one. */
  leave() {
    if (--this.#uses) return;
    if (this.#gate.isUp) this.#ask({ act: "leave" }).catch(() => {});
    this.#end();
  }

  /** There is one more room. @param {any} meta @param {boolean} [enter] */
  join(meta, enter = true) {
    this.#uses++;
    const changes = (enter && !this.#entering) || meta !== undefined;
    this.#entering ||= enter;
    if (meta !== undefined) this.#meta = meta;
    if (changes || this.#uses === 1) this.#load();
  }

  /** Read the set again from its first part. Requests during the read cause one more read after it. */
  async #load() {
    if (!this.#gate.isUp || !this.#life.offer("load")) return;
    clearTimeout(this.#timer);
    this.#again = this.#isReading;
    if (this.#again) return;
    this.#isReading = true;
    const nth = ++this.#nth;
    this.#reading = null;
    this.#early = [];
    this.#changed();
    try {
      const act = this.#entering ? { act: "enter", meta: this.#meta } : { act: "watch" };
      let part = await this.#ask(act);
      if (nth !== this.#nth) return;
      this.#reading = new Map();
      this.#named.clear();
      [this.#copy, this.#version] = [part.copy, part.version];
      for (;;) {
        this.#take(part);
        for (const notice of this.#early.splice(0)) this.#notice(notice);
        if (nth !== this.#nth) return;
        if (part.next === null) break;
        part = await this.#ask({ act: "page", after: part.next });
        if (nth !== this.#nth) return;
        if (part.copy !== this.#copy) return this.#reload();
      }
      this.#isReading = false;
      this.#life.take("loaded");
      this.error = null;
      this.#failures = 0;
      this.#replace();
      if (this.#again) void this.#load();
    } catch (/** @type {any} */ error) {
      if (nth === this.#nth) this.#failed(error);
    }
  }

  /** @param {object} act @returns {Promise<Notice>} */
  #ask(act) {
    return this.#gate._request(PRESENCE, { topic: this.#topic, ...act });
  }

  /** Take a part of the set, without users that a later difference has named. @param {Notice} part */
  #take({ members, version }) {
    for (const each of members) {
      if ((this.#named.get(each[0]) ?? 0) <= version) this.#reading?.set(each[0], read(each));
    }
  }

  /** @param {Notice} notice */
  #notice(notice) {
    const { copy, base = 0, version, members, left = [], reset, ended } = notice;
    if (ended) return this.#failed(new HeadgateError(ended.code, ended, ended.retry, ended.message));
    if (reset) return this.#reload();
    if (!this.#life.is("loading", "live")) return;
    if (this.#life.is("loading") && !this.#reading) return void this.#early.push(notice);
    if (copy !== this.#copy) return this.#life.is("live") ? this.#reload() : undefined;
    if (version <= this.#version) return;
    if (base > this.#version) return this.#reload();
    this.#version = version;
    if (this.#reading) {
      for (const each of members) this.#name(each[0]).set(each[0], read(each));
      for (const user of left) this.#name(user).delete(user);
    } else {
      for (const each of members) this.#put(read(each));
      for (const user of left) this.#drop(user);
    }
  }

  /** @param {string} user */
  #name(user) {
    this.#named.set(user, this.#version);
    return /** @type {Map<string, Member>} */ (this.#reading);
  }

  /** The set is complete. Report the differences from the previous one. */
  #replace() {
    const next = this.#reading ?? new Map();
    this.#reading = null;
    const first = !this.#wasRead;
    this.#wasRead = true;
    for (const user of [...this.#members.keys()]) if (!next.has(user)) this.#drop(user);
    for (const member of next.values()) this.#put(member, first);
    this.#changed();
  }

  /** @param {Member} member @param {boolean} [quiet] */
  #put(member, quiet = false) {
    const was = this.#members.get(member.user);
    if (was && was.connections === member.connections && was.since === member.since && JSON.stringify(was.meta) === JSON.stringify(member.meta)) return;
    this.#members.set(member.user, member);
    this.#changed();
    if (was) this.trigger("member:change", member, was);
    else if (!quiet) this.trigger("member:join", member);
  }

  /** @param {string} user */
  #drop(user) {
    const was = this.#members.get(user);
    if (!was) return;
    this.#members.delete(user);
    this.#changed();
    this.trigger("member:leave", was);
  }

  #lose() {
    this.#nth++;
    this.#isReading = false;
    clearTimeout(this.#timer);
    if (this.#life.offer("lose")) this.#changed();
  }

  /** Ask again soon. @param {number} [delayMs] */
  #reload(delayMs = RELOAD_MS * (0.5 + Math.random())) {
    if (this.#life.is("refused", "closed")) return;
    this.#lose();
    this.#timer = startTimer(() => this.#load(), delayMs);
  }

  /** @param {HeadgateError} error */
  #failed(error) {
    if (!error.retry) return this.#refuse(error);
    this.error = error;
    this.#reload(delayAfterMs(error.parts.retryAfterS, reconnectDelayMs(this.#failures++)));
  }

  /** @param {HeadgateError} error */
  #refuse(error) {
    this.#lose();
    this.error = error;
    this.#life.offer("refuse");
    for (const user of [...this.#members.keys()]) this.#drop(user);
    this.#wasRead = false;
    this.#changed();
    this.trigger("presence:error", error);
  }

  #end() {
    if (!this.#life.offer("close")) return;
    this.#nth++;
    clearTimeout(this.#timer);
    this.stopListening();
    this.#gate._rooms.delete(this);
    this.#forget();
    this.#changed();
  }

  #changed = createChanges(() => {
    const members = Object.freeze([...this.#members.values()].sort((one, other) => (one.user < other.user ? -1 : 1)));
    this.snapshot = Object.freeze({ members, status: this.#life.state, error: this.error });
    this.trigger("change", this.snapshot);
  });
}

/** @param {WireMember} wire @returns {Member} */
function read([user, connections, since, meta]) {
  return Object.freeze({ user, connections, since, meta: meta === null ? null : JSON.parse(meta) });
}
