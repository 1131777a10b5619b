/**
 * Pages with an outbox, their storage, a network and a log in virtual time, driven by a seed. Nothing here knows how the outbox works. The
 * log remembers ids and loses its end as docs/protocol.md says, the storage and the locks act like a browser's, and each step of any of
 * them is a separate step.
 */
import { HeadgateError } from "../../src/index.js";
import { checkOptions } from "../../src/language/options.js";
import { heldAfter } from "../../src/offline/indexeddb-store.js";
import { checkRoom } from "../../src/offline/memory-store.js";
import { belowFrom } from "../chance.js";

/** As gateway/headgate/redis/log.lua has them. */
const IDEMPOTENCY_MS = 300_000;
const LEAST_IDS = 65_536;
/** A request that a broken connection has left may arrive as late as this, by time and by later events of others. */
const LATEST_MS = 50_000;
const LATEST_EVENTS = 16_000;
/** A client gets its log's position at least as often as that. */
const CURSOR_EVENTS = 8_000;

const realImmediate = setImmediate;
/** Let every promise that can settle do so. */
export const settle = () => new Promise((resolve) => realImmediate(resolve));

export class OutboxWorld {
  nowMs = 1e9;
  /** The log: an entry of another publisher is not here. @type {{ id: string, epoch: string, offset: number, atMs: number }[]} */
  log = [];
  head = 0;
  epoch = "e";
  #epochs = 0;
  /** The log of the Redis that wrote it before, which may come back. @type {{ log: OutboxWorld["log"], head: number, epoch: string } | null} */
  #before = null;
  /** The waiting steps: operations of storages, requests on their way, answers, messages between tabs. */
  steps = [];
  timers = [];
  /** The disk of the origin. */
  rows = new Map();
  totals = { events: 0, bytes: 0 };
  nextKey = 1;
  /** @type {ModelTab[]} */
  tabs = [];
  lock = { holder: null, line: [] };
  /** Sent as another user than the publishing one. */
  faults = [];

  constructor(seed, bounds) {
    this.below = belowFrom(seed);
    this.bounds = bounds;
  }

  /** Take one of the waiting steps. Storage and tabs keep their own order, anything else comes as it may. */
  step() {
    const lanes = new Map();
    for (const step of this.steps) if (!lanes.has(step.lane)) lanes.set(step.lane, step);
    const possible = [...lanes.values()];
    if (!possible.length) return false;
    const chosen = possible[this.below(possible.length)];
    this.steps.splice(this.steps.indexOf(chosen), 1);
    chosen.act();
    return true;
  }

  later(lane, act) {
    this.steps.push({ lane, act });
  }

  /** Let time go by, and run the due timers. A client learns of another epoch within a moment. */
  async pass(ms) {
    for (const step of this.steps.filter(({ lane }) => this.tabs.some(({ notices }) => notices === lane))) {
      this.steps.splice(this.steps.indexOf(step), 1);
      step.act();
      await settle();
    }
    this.nowMs += ms;
    for (const timer of this.timers.filter(({ dueMs }) => dueMs <= this.nowMs)) {
      this.timers.splice(this.timers.indexOf(timer), 1);
      timer.act();
      await settle();
    }
  }

  /** Others publish. A client learns of all but the last event. @param {number} times */
  others(times) {
    for (let n = 0; n < times; n++) {
      for (const tab of this.tabs) if (tab.status === "live" && tab.state.epoch === this.epoch) tab.state = { ...tab.state, offset: this.head };
      this.head += this.below(CURSOR_EVENTS);
    }
  }

  /** Another Redis continues the log, without its last events. @param {number} end */
  roll(end) {
    const { log, head, epoch } = this;
    this.#turn({ log: log.filter(({ offset }) => offset <= end), head: Math.min(head, end), epoch: `e${++this.#epochs}` });
    this.#before = { log, head, epoch };
  }

  /** The previous Redis continues its own log, in its own epoch. */
  goBack() {
    if (!this.#before) return;
    const { log, head, epoch } = this;
    this.#turn(this.#before);
    this.#before = { log, head, epoch };
  }

  #turn(next) {
    const gone = this.log.filter((entry) => !next.log.includes(entry));
    this.lost?.(gone);
    Object.assign(this, next, { log: [...next.log] });
    for (const tab of this.tabs) tab.turned();
  }

  /** The gateway takes a request; returns its answer. */
  append(request) {
    const { id, tab } = request;
    if (request.user !== "ana") this.faults.push(`${id} was sent as ${request.user}`);
    const known = this.log.findLast((entry) => entry.id === id);
    const isRemembered = known && this.nowMs - known.atMs < IDEMPOTENCY_MS && this.head - known.offset < LEAST_IDS;
    const way = tab.rules ? this.below(10) : 9;
    if (way === 0) return { error: new HeadgateError("forbidden", {}) };
    if (way === 1) return { error: new HeadgateError("limit_reached", { name: "publish_per_s", retryAfterS: 1 }, true) };
    if (way === 2) return { error: new HeadgateError("bus_unavailable", {}, true) };
    if (way === 3) return { error: new HeadgateError("unauthorized", { reason: "left" }) };
    if (!isRemembered) this.log.push({ id, epoch: this.epoch, offset: ++this.head, atMs: this.nowMs });
    if (way === 4) return { error: new HeadgateError("bus_unavailable", {}, true) };
    const { epoch, offset } = isRemembered ? known : this.log.at(-1);
    return { receipt: { epoch, offset, duplicate: Boolean(isRemembered) } };
  }

  /** The user clears the storage of the site. */
  clear() {
    this.rows.clear();
    this.totals = { events: 0, bytes: 0 };
  }

  grant() {
    const { lock } = this;
    if (lock.holder || !lock.line.length) return;
    lock.holder = lock.line.shift();
    const { tab, act, resolve, reject } = lock.holder;
    const release = () => {
      if (!tab.isAlive) return;
      lock.holder = null;
      this.grant();
    };
    act().finally(release).then(resolve, reject);
  }
}

/** One page: its gate, its part of the storage, its clock. */
export class ModelTab {
  isAlive = true;
  rules = true;
  status = "waiting";
  state = { user: null, connection: "waiting", position: "none", epoch: null, offset: null, limits: {} };
  _checkOptions = checkOptions;
  #listeners = new Map();
  #received = () => {};
  /** Requests without an answer. */
  #requests = new Set();
  #connections = 0;

  /** @param {OutboxWorld} world @param {string} name @param {(name: string, notice: any) => void} told */
  constructor(world, name, reported) {
    this.world = world;
    this.tab = name;
    this.reported = reported;
    world.tabs.push(this);
  }

  // The gate.

  on(name, callback) {
    this.#listeners.set(name, callback);
  }

  off(name) {
    this.#listeners.delete(name);
  }

  trigger(name, notice) {
    if (this.isAlive) this.reported(name, notice);
  }

  _heard() {
    return true;
  }

  publish(_topic, _data, { id }) {
    const request = { id, tab: this, user: this.state.user, sentMs: this.world.nowMs, sentAt: this.world.head };
    this.#requests.add(request);
    this.world.later(request, () => {
      if (this.world.nowMs - request.sentMs > LATEST_MS || this.world.head - request.sentAt > LATEST_EVENTS) {
        if (this.#requests.delete(request)) request.reject(new HeadgateError("outcome_unknown", { id: request.id, reason: "timeout" }));
        return;
      }
      const { receipt, error } = this.world.append(request);
      this.world.later(request, () => {
        if (!this.#requests.delete(request)) return;
        if (error) request.reject(error);
        else request.resolve(receipt);
      });
    });
    return new Promise((resolve, reject) => Object.assign(request, { resolve, reject }));
  }

  /** No request has an answer, and each may arrive all the same. */
  end(code) {
    for (const request of this.#requests) request.reject(new HeadgateError("outcome_unknown", { id: request.id, reason: code }));
    this.#requests.clear();
  }

  cut() {
    if (this.status !== "live") return;
    this.status = "waiting";
    this.state = { ...this.state, connection: "waiting" };
    this.#connections++;
    this.end("disconnected");
  }

  get isUp() {
    return this.state.connection === "up";
  }

  /** @param {string} user @param {boolean} [isBehind] it comes back with its old position, until a notice moves it */
  connect(user, isBehind = this.state.epoch !== null && this.world.below(2) === 1) {
    if (this.status === "live" || !this.isAlive) return;
    const { epoch, head } = this.world;
    this.status = "live";
    const position = this.state.epoch === epoch ? "catching_up" : "announced";
    this.state = isBehind ? { ...this.state, user, connection: "up", position } : { user, connection: "up", position: "live", epoch, offset: head, limits: {} };
    this.#listeners.get("connection:up")?.({ epoch, offset: head, limits: {} });
    if (isBehind) this.turned();
  }

  /** Notices of other epochs on their way. */
  notices = {};

  /** The log is in another epoch, or may be. A notice says where it continues. */
  turned() {
    if (this.status !== "live") return;
    const { epoch, head } = this.world;
    const connection = this.#connections;
    this.world.later(this.notices, () => {
      if (!this.isAlive || connection !== this.#connections) return;
      const { offset, epoch: was } = this.state;
      const isLost = was !== epoch && offset > head;
      // A client of the same epoch has the events in between.
      this.state = { ...this.state, position: "live", epoch, offset: was === epoch ? Math.max(offset, head) : Math.min(offset, head) };
      if (isLost) this.#listeners.get("delivery:gap")?.({ reason: head ? "rolled_back" : "log_lost" });
    });
  }

  /** The process of the page ends. Only its sent messages and its storage's operations continue. */
  kill() {
    const { world } = this;
    this.isAlive = false;
    world.steps = world.steps.filter(({ lane }) => lane !== this.notices);
    this.#listeners.clear();
    this.#requests.clear();
    world.tabs.splice(world.tabs.indexOf(this), 1);
    world.timers = world.timers.filter(({ tab }) => tab !== this);
    world.lock.line = world.lock.line.filter(({ tab }) => tab !== this);
    // A transaction before its begin is gone, and a begun one comes before those of other pages.
    const pending = world.steps.filter(({ lane }) => lane === this.store);
    world.steps = world.steps.filter(({ lane }) => lane !== this.store);
    for (const { act } of pending.slice(0, world.below(pending.length + 1))) act();
    if (world.lock.holder?.tab === this) world.lock.holder = null;
    world.grant();
  }

  // The clock.

  clock = {
    nowMs: () => this.world.nowMs,
    after: (act, delayMs) => {
      const timer = { act: () => this.isAlive && act(), dueMs: this.world.nowMs + delayMs, tab: this };
      this.world.timers.push(timer);
      return () => {
        this.world.timers = this.world.timers.filter((each) => each !== timer);
      };
    },
  };

  // The storage.

  /** An operation happens at one time, and its end is heard of at another. */
  #operate(act) {
    const { world } = this;
    return new Promise((resolve, reject) => {
      world.later(this.store, () => {
        let result;
        let fault;
        try {
          result = act();
        } catch (error) {
          fault = error;
        }
        if (this.isAlive) world.later(this.store, () => this.isAlive && (fault ? reject(fault) : resolve(result)));
      });
    });
  }

  #replace({ key }, next) {
    const { rows } = this.world;
    const row = rows.get(key);
    if (!row) return;
    this.world.totals = heldAfter(this.world.totals, row, next);
    if (next) rows.set(key, next);
    else rows.delete(key);
  }

  store = {
    outlives: true,
    add: (entry) =>
      this.#operate(() => {
        const { world } = this;
        checkRoom(world.bounds, world.totals, entry.bytes);
        world.totals.events++;
        world.totals.bytes += entry.bytes;
        const key = world.nextKey++;
        world.rows.set(key, structuredClone({ ...entry, key }));
        world.added(entry.id, key);
      }),
    entries: () => this.#operate(() => structuredClone([...this.world.rows.values()].sort((a, b) => a.key - b.key))),
    put: (entry) => this.#operate(() => this.#replace(entry, structuredClone(entry))),
    remove: (entry) => this.#operate(() => this.#replace(entry)),
    alone: (act) =>
      new Promise((resolve, reject) => {
        if (!this.isAlive) return;
        this.world.lock.line.push({ tab: this, act, resolve, reject });
        this.world.grant();
      }),
    living: async () => new Set(this.world.tabs.map(({ tab }) => tab)),
    notify: () => {
      for (const other of this.world.tabs) if (other !== this) this.world.later(other.hears, () => other.isAlive && other.#received());
    },
    listen: (hear) => {
      this.#received = hear;
    },
    close() {},
  };
  hears = {};

  /** @override the store's own name of the page */
  get storage() {
    return Object.assign(this.store, { tab: this.tab, bounds: this.world.bounds });
  }
}
