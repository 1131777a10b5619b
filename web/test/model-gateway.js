/**
 * A gateway, a network and a page in virtual time, driven by a seed: every order in which messages, timers, turns of the page
 * and faults can fall is one history. Nothing here knows how the client works: it keeps a log, answers as docs/protocol.md
 * says, and compares its log with the events that handlers saw and the gaps that the application was told.
 */
const realImmediate = setImmediate;

/** Let every promise that can settle do so. */
const settle = () => new Promise((resolve) => realImmediate(resolve));

/** A small generator with a seed (mulberry32). @param {number} seed */
function randomFrom(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export class World {
  nowMs = 0;
  /** Steps taken, for the message of a failure. */
  trail = [];
  #restores = [];
  #timers = new Map();
  #turns = new Map();
  #nextId = 1;

  constructor(seed) {
    this.seed = seed;
    this.random = randomFrom(seed);
    this.gateway = new ModelGateway(this);
    this.#replace(performance, "now", () => this.nowMs);
    this.#replace(Math, "random", () => this.random());
    this.#replace(globalThis, "setTimeout", (act, delayMs = 0) => this.#later(this.#timers, { act, dueMs: this.nowMs + delayMs }));
    this.#replace(globalThis, "clearTimeout", (id) => this.#timers.delete(id));
    // A turn of the page, by either of the ways in which a client can ask for one: as in Node, or as in a browser.
    const post = (act) => this.#later(this.#turns, { act });
    this.#replace(globalThis, "setImmediate", seed % 2 ? post : undefined);
    this.#replace(globalThis, "clearImmediate", (id) => this.#turns.delete(id));
    this.#replace(globalThis, "MessageChannel", class {
      port1 = { onmessage() {}, close() {} };
      port2 = { postMessage: () => post(() => this.port1.onmessage()) };
    });
    this.#replace(console, "error", () => {});
  }

  /** By hand: the test runner's mocks keep the stack of every call, and there are millions. */
  #replace(where, name, own) {
    const real = Object.getOwnPropertyDescriptor(where, name);
    this.#restores.push(() => (real ? Object.defineProperty(where, name, real) : delete where[name]));
    Object.defineProperty(where, name, { value: own, configurable: true, writable: true });
  }

  /** Give the process its own time back. */
  end() {
    for (const restore of this.#restores.splice(0)) restore();
  }

  #later(where, what) {
    const id = this.#nextId++;
    where.set(id, what);
    return id;
  }

  /** @param {number} n a whole number below it */
  below(n) {
    return Math.floor(this.random() * n);
  }

  /** Give the page its turn. */
  turn() {
    const [next] = this.#turns;
    if (!next) return false;
    const [id, { act }] = next;
    this.#turns.delete(id);
    act();
    return true;
  }

  /** Let time pass until the next timer, and fire it. */
  timer() {
    const next = [...this.#timers].sort(([, one], [, other]) => one.dueMs - other.dueMs)[0];
    if (!next) return false;
    const [id, { act, dueMs }] = next;
    this.#timers.delete(id);
    this.nowMs = Math.max(this.nowMs, dueMs);
    act();
    return true;
  }

  settle = settle;
}

class ModelGateway {
  epoch = "e0";
  /** Everything that was ever logged: epoch → entries by offset - 1. */
  history = new Map([["e0", []]]);
  /** The oldest offset that the log still holds. */
  first = 1;
  /** The outcome of the next CONNECT. @type {"accept" | "refuse" | "fail" | "silence"} */
  next = "accept";
  /** The position from which each pattern was acknowledged last, once that has been delivered. */
  acknowledged = {};
  #listeners = new Map();
  #any = [];
  #stream = [];
  #connected = false;
  #subscribed = new Set();
  #nth = 0;

  constructor(world) {
    this.world = world;
  }

  get head() {
    return this.history.get(this.epoch).length;
  }

  // Called by the client: socket.io-client's interface.

  io = (_address, options) => {
    this.options = options;
    return this;
  };

  on(name, listener) {
    this.#listeners.set(name, listener);
  }

  onAny(listener) {
    this.#any.push(listener);
  }

  off() {
    this.#listeners.clear();
    return this;
  }

  offAny() {
    this.#any = [];
  }

  connect() {
    const nth = ++this.#nth;
    this.options.auth((auth) => {
      if (nth === this.#nth) this.#connectArrives(JSON.parse(JSON.stringify(auth)), nth);
    });
  }

  disconnect() {
    this.#gone("io client disconnect");
  }

  timeout() {
    return {
      emitWithAck: (name, body) =>
        new Promise((resolve, reject) => {
          const lost = () => reject(new Error("socket has been disconnected"));
          if (!this.#connected) return lost();
          this.#send(() => resolve(this.#answer(name, JSON.parse(JSON.stringify(body)))), lost);
        }),
    };
  }

  // The gateway.

  #connectArrives({ resume, subscriptions }, nth) {
    const how = this.next;
    this.next = "accept";
    const ifPresent = (act) => () => nth === this.#nth && act();
    if (how === "silence") return;
    if (how === "fail") return this.#stream.push({ act: ifPresent(() => this.#tell("connect_error", new Error("xhr poll error"))) });
    if (how === "refuse") {
      const data = { code: "unauthorized", message: "no", retry: false };
      return this.#stream.push({ act: ifPresent(() => this.#tell("connect_error", Object.assign(new Error("no"), { data }))) });
    }
    this.#connected = true;
    this.#subscribed = new Set(subscriptions.map(({ pattern }) => pattern));
    const { epoch, head } = this;
    const same = resume?.epoch === epoch && resume.offset <= head;
    // Another log: it goes on at the head, and all that was before is told as lost.
    const from = same ? resume.offset : head;
    const gone = this.first - 1;
    const resumed = resume ? same && from >= gone : null;
    const base = { epoch, offset: resume ? Math.max(from, gone) : head };
    this.#emit("welcome", {
      session: `s${nth}`, user: "ann", epoch, offset: head, resumed, heartbeat_s: 10,
      limits: { max_payload_bytes: 1000, inbound_per_s: 1000, inbound_burst: 1000 },
      subscriptions: subscriptions.map(({ pattern }) => ({ pattern, ok: true })),
    }, () => {
      for (const { pattern } of subscriptions) this.acknowledged[pattern] ??= base;
    });
    if (!resume) return;
    if (!same) this.#gap("log_lost", [...this.history].map(([each, { length: to }]) => ({ epoch: each, from: 1, to })));
    else if (from < gone) this.#gap("trimmed", [{ epoch, from: from + 1, to: gone }]);
    for (const entry of this.history.get(epoch).slice(base.offset)) this.#event(entry, true);
  }

  #answer(name, { pattern }) {
    if (name === "subscribe") {
      this.#subscribed.add(pattern);
      const { epoch, head: offset } = this;
      this.acknowledged[pattern] ??= { epoch, offset };
      return { ok: true, pattern, epoch, offset };
    }
    return { ok: true };
  }

  #gap(reason, covers) {
    const [{ from, to }] = covers;
    const numbers = reason === "trimmed" ? { from, to, count: to - from + 1 } : { from: null, to: null, count: null };
    this.#emit("gap", { patterns: [...this.#subscribed], ...numbers, bytes: null, reason, recoverable: false, covers });
  }

  #event({ topic, epoch, offset }, replayed) {
    const pattern = `${topic}.#`;
    // Looked at when it is sent: a request that is answered later does not change it.
    this.#send(() => this.#subscribed.has(pattern) && this.#receive("event", topic, { epoch, offset }, { id: `${epoch}-${offset}`, time: 1, offset, ...(replayed && { replayed }) }));
  }

  publish(topic) {
    const entries = this.history.get(this.epoch);
    const entry = { topic, epoch: this.epoch, offset: entries.length + 1 };
    entries.push(entry);
    if (this.#connected) this.#event(entry, false);
  }

  trim() {
    this.first = Math.max(this.first, this.head + 1 - this.world.below(4));
  }

  /** Redis comes back empty. */
  lose() {
    const covers = [...this.history].map(([epoch, { length: to }]) => ({ epoch, from: 1, to }));
    this.epoch = `e${this.history.size}`;
    this.history.set(this.epoch, []);
    this.first = 1;
    if (!this.#connected) return;
    this.#gap("log_lost", covers);
    this.#emit("cursor", { epoch: this.epoch, offset: 0 });
  }

  moving() {
    if (this.#connected) this.#emit("status", { moving: { reason: "deploy", within_s: 0.01 } });
  }

  heartbeat() {
    if (this.#connected) this.#emit("cursor", { epoch: this.epoch, offset: this.head });
  }

  // The network.

  /** Deliver the next message under way. */
  deliver() {
    const next = this.#stream.shift();
    next?.act();
    return Boolean(next);
  }

  cut() {
    this.#gone("transport close");
  }

  #send(act, lost) {
    this.#stream.push({ act, lost });
  }

  #emit(name, body, delivered) {
    this.#send(() => {
      delivered?.();
      this.#receive(name, body);
    });
  }

  #receive(name, ...args) {
    for (const listener of this.#any) listener(name, ...args);
  }

  #tell(name, ...args) {
    this.#listeners.get(name)?.(...args);
  }

  #gone(reason) {
    const was = this.#connected;
    this.#connected = false;
    this.#nth++;
    if (was) this.#tell("disconnect", reason);
    for (const { lost } of this.#stream.splice(0)) lost?.();
  }
}

/** Received or told: the events that one pattern's handler sees, compared with the log. */
export class Oracle {
  #seen = new Set();
  #last = new Map();
  /** Everything up to here was received or told. */
  #checked = null;
  /** Where the promise begins: set once, when the application was told that the subscription is active. */
  base = null;

  constructor(gateway, topic, told) {
    Object.assign(this, { gateway, topic, told });
  }

  promised() {
    this.base ??= this.gateway.acknowledged[`${this.topic}.#`];
  }

  /** The handler saw an event. */
  saw({ epoch, offset }) {
    const key = `${epoch}-${offset}`;
    if (this.#seen.has(key)) throw new Error(`${this.topic}: ${key} twice`);
    if (offset <= (this.#last.get(epoch) ?? 0)) throw new Error(`${this.topic}: ${key} after ${this.#last.get(epoch)}`);
    this.check(epoch, offset);
    this.#seen.add(key);
    this.#last.set(epoch, offset);
    // Everything before it has been compared with the log.
    if (this.base) this.#checked = { epoch, offset };
  }

  /** Everything before this position was received or told. */
  check(epoch, before = Infinity) {
    if (!this.base) return;
    const from = this.#checked ?? this.base;
    const epochs = [...this.gateway.history.keys()];
    for (const each of epochs.slice(epochs.indexOf(from.epoch), epochs.indexOf(epoch) + 1)) {
      for (const { topic, offset } of this.gateway.history.get(each).slice(each === from.epoch ? from.offset : 0)) {
        if (topic !== this.topic || (each === epoch && offset >= before)) continue;
        const told = () => this.told.some(({ covers }) => covers.some((range) => range.epoch === each && range.from <= offset && offset <= range.to));
        if (!this.#seen.has(`${each}-${offset}`) && !told()) throw new Error(`${this.topic}: ${each}-${offset} neither received nor told, before ${epoch}-${before}`);
      }
    }
  }
}
