/**
 * A gateway, a network and a page in virtual time, driven by a seed. Every order in which messages, timers, turns of the page
 * and faults can fall is one history. Nothing here knows how the client works. It keeps a log with its lineage, answers as
 * docs/protocol.md says, and compares its log with the events that handlers saw and the reported gaps.
 */
import { belowFrom } from "./chance.js";
import { Listened, wired } from "./listened.js";

const realImmediate = setImmediate;

/** Let every promise that can settle do so. */
const settle = () => new Promise((resolve) => realImmediate(resolve));

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
    this.below = belowFrom(seed);
    this.gateway = new ModelGateway(this);
    this.#replace(performance, "now", () => this.nowMs);
    this.#replace(Math, "random", () => this.below(2 ** 32) / 2 ** 32);
    this.#replace(globalThis, "setTimeout", (act, delayMs = 0) => this.#later(this.#timers, { act, dueMs: this.nowMs + delayMs }));
    this.#replace(globalThis, "clearTimeout", (id) => this.#timers.delete(id));
    // A turn of the page, by either way in which a client can ask for one: as in Node, or as in a browser.
    const post = (act) => this.#later(this.#turns, { act });
    this.#replace(globalThis, "setImmediate", seed % 2 ? post : undefined);
    this.#replace(globalThis, "clearImmediate", (id) => this.#turns.delete(id));
    this.#replace(globalThis, "MessageChannel", class {
      port1 = { onmessage() {}, close() {} };
      port2 = { postMessage: () => post(() => this.port1.onmessage()) };
    });
    this.#replace(console, "error", () => {});
  }

  /** By hand, because the test runner's mocks keep the stack of every call, and there are millions. */
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

/** The tree of everything that was ever logged. An event is named by its epoch and offset; an epoch continues where another ended. */
export class Lines {
  /** Epoch → the epoch before it and the last offset that both share; none: it began a log. @type {Map<string, { epoch: string, end: number } | null>} */
  #before = new Map();
  #shared = new Map();

  begin(before) {
    const epoch = `e${this.#before.size}`;
    this.#before.set(epoch, before);
    return epoch;
  }

  /** Return how many epochs began before this one. */
  order(epoch) {
    return Number(epoch.slice(1));
  }

  /** Return the highest offset that the line of an epoch shares with the line to a position; -1: they are of different logs. */
  shared(epoch, { epoch: of, offset }) {
    const key = `${epoch} ${of}`;
    if (!this.#shared.has(key)) this.#shared.set(key, this.#common(epoch, of));
    return Math.min(this.#shared.get(key), offset);
  }

  #common(one, other) {
    const ends = new Map();
    for (const [epoch, end] of this.#line(one)) ends.set(epoch, end);
    for (const [epoch, end] of this.#line(other)) if (ends.has(epoch)) return Math.min(end, ends.get(epoch));
    return -1;
  }

  /** The epochs from one back to the beginning of its log, each with its last offset on the line. */
  *#line(epoch) {
    for (let end = Infinity; epoch; ) {
      yield [epoch, end];
      const before = this.#before.get(epoch);
      end = Math.min(end, before?.end ?? 0);
      epoch = before?.epoch;
    }
  }

  /** Whether an event is on the line that leads to a position. */
  leads({ epoch, offset }, to) {
    return offset <= this.shared(epoch, to);
  }
}

/** The log of a model gateway, with its lineage. */
export class Log {
  lines = new Lines();
  epoch = this.lines.begin(null);
  /** Entries by offset - 1. */
  log = [];
  /** The log's epochs, each with its first offset. */
  lineage = [{ epoch: this.epoch, first: 1 }];
  /** Everything that was ever logged. */
  history = [];
  /** The oldest offset that the log still holds. */
  first = 1;

  constructor(world) {
    this.world = world;
  }

  get head() {
    return this.log.length;
  }

  write(topic) {
    const entry = { topic, epoch: this.epoch, offset: this.head + 1 };
    this.log.push(entry);
    this.history.push(entry);
    return entry;
  }

  /** Return the last offset of an epoch on the line; null: its log is another one. */
  endOf(epoch) {
    const nth = this.lineage.findIndex((each) => each.epoch === epoch);
    return nth < 0 ? null : nth === this.lineage.length - 1 ? this.head : this.lineage[nth + 1].first - 1;
  }

  trim() {
    this.first = Math.max(this.first, this.head + 1 - this.world.below(4));
  }

  empty() {
    this.epoch = this.lines.begin(null);
    this.lineage = [{ epoch: this.epoch, first: 1 }];
    this.log = [];
    this.first = 1;
  }

  /** Go on in another epoch, without the last events. Return the last offset that is left. */
  cutBack(without) {
    const end = Math.max(0, this.head - without);
    this.log.length = end;
    this.first = Math.min(this.first, end + 1);
    this.lineage = this.lineage.filter(({ first }) => first <= end + 1);
    // The epoch that wrote the last remaining event.
    this.epoch = this.lines.begin({ epoch: this.lineage.at(-1).epoch, end });
    this.lineage.push({ epoch: this.epoch, first: end + 1 });
    return end;
  }

  /** Return the events that are no longer in the log. */
  gone(end, to) {
    return this.history.filter((entry) => entry.offset > end && entry.offset <= to && this.log[entry.offset - 1] !== entry);
  }

  /** Answer a request for a page, of a random size. */
  replay({ pattern, from, to, epoch: of }) {
    const last = Math.min(to, of === undefined ? this.head : (this.endOf(of) ?? 0));
    const pageEnd = Math.min(last, from + this.world.below(3));
    const events = this.log.slice(from - 1, pageEnd).filter(({ topic, offset }) => offset >= this.first && matches(pattern, topic));
    return { ok: true, events: events.map((entry) => [entry.topic, entry, metaOf(entry, true)]), next: pageEnd < last ? pageEnd + 1 : null, epoch: this.epoch };
  }

  /** Return where a client that resumes from a position continues, if it can, and what its welcome says about that. */
  resume(resume) {
    const { epoch, head } = this;
    const end = resume && this.endOf(resume.epoch);
    const from = end === null || !resume ? null : { epoch, offset: Math.min(resume.offset, end) };
    const resumed = resume ? from?.offset === resume.offset && from.offset >= this.first - 1 : null;
    return { from, welcome: { user: "ann", epoch, offset: head, heartbeat_s: 10, from, resumed, limits: { max_payload_bytes: 1000, inbound_per_s: 1000, inbound_burst: 1000 } } };
  }
}

/** How far the log has brought one client its events. Each pattern has had those up to its start, or to the base. */
export class Reader {
  isReading = false;
  #position = 0;
  #base = 0;
  #starts = new Map();

  /** @param {Log} log */
  constructor(log) {
    this.log = log;
  }

  begin(offset, isReading) {
    this.isReading = isReading;
    this.#position = this.#base = offset;
    this.#starts.clear();
  }

  /** A pattern comes while others are read. */
  join(pattern) {
    if (this.isReading) this.#starts.set(pattern, this.log.head);
  }

  leave(pattern) {
    this.#starts.delete(pattern);
  }

  end() {
    this.isReading = false;
    this.#starts.clear();
  }

  /** Bring a pattern's events from where it asks, or from where they are still to be sent, if the client has the pattern. Return where that is. */
  past(pattern, { offset, epoch, last }, isNew = true) {
    const { log } = this;
    // Of a lost log: all events of this one; if some of it was trimmed, a gap says so.
    let start = last ? this.#before(pattern, last) : Math.min(offset, epoch === undefined ? log.head : (log.endOf(epoch) ?? 0));
    if (!this.isReading) {
      this.#base = log.head;
      this.#starts.clear();
    } else {
      if (!isNew) start = Math.min(start, Math.max(this.#starts.get(pattern) ?? this.#base, this.#position));
      this.#base = Math.max(this.#base, this.#position);
      for (const [other, begin] of this.#starts) this.#starts.set(other, Math.max(begin, this.#position));
    }
    this.#starts.set(pattern, start);
    this.#position = Math.min(this.#base, ...this.#starts.values());
    this.isReading = true;
    return start;
  }

  /** Return the offset that the last so many events of a pattern follow. */
  #before(pattern, last) {
    const { log, first } = this.log;
    const matching = log.slice(first - 1).filter(({ topic }) => matches(pattern, topic));
    return last > matching.length ? first - 1 : matching.at(-last).offset - 1;
  }

  /** Read some of the log. @param {string[]} patterns @param {(entry: object) => void} send @param {(from: number, to: number, covers: object[]) => void} trimmed */
  read(patterns, send, trimmed) {
    const { log, first, head, world } = this.log;
    if (this.#position < first - 1) {
      trimmed(this.#position + 1, first - 1, log.slice(this.#position, first - 1));
      this.#position = first - 1;
    }
    for (const entry of log.slice(this.#position, this.#position + 1 + world.below(4))) {
      if (patterns.some((each) => matches(each, entry.topic) && entry.offset > (this.#starts.get(each) ?? this.#base))) send(entry);
      this.#position = entry.offset;
    }
    const even = this.#even();
    if (this.#position >= even) this.#starts.clear();
    if (this.#position >= Math.max(head, even)) this.isReading = false;
  }

  #even() {
    return Math.max(this.#base, ...this.#starts.values());
  }

  /** The log was cut back. Return how far the client's events came: a subscription that began while it read may be ahead of them. */
  cutBack(end, was) {
    const place = this.isReading ? Math.max(this.#position, this.#even()) : was;
    this.#base = Math.min(this.#base, end);
    for (const [pattern, start] of this.#starts) this.#starts.set(pattern, Math.min(start, end));
    this.#position = this.isReading ? Math.min(this.#position, end) : end;
    return { place, position: this.#position };
  }
}

/**
 * One client's connection: socket.io-client's interface, the messages under way, and the gateway's end of it. Its owner adds `arrives(auth, nth)` for a
 * CONNECT, and `answer(name, body)`, which returns the answer to a request and a function to be called when it is delivered.
 */
export class Link extends Listened {
  reader;
  isConnected = false;
  /** Whether the gateway answers no request for now. */
  holds = false;
  /** The client's patterns with their policies; `catch_up` is undefined. @type {Map<string, string | undefined>} */
  subscribed = new Map();
  /** Messages under way: events and notices in order, acknowledgements that may overtake them, requests. */
  lane = [];
  acks = [];
  #requests = [];
  /** Counts connections and their ends. */
  nth = 0;

  /** @param {Log} log */
  constructor(log) {
    super();
    this.log = log;
    this.reader = new Reader(log);
  }

  // Called by the client.

  io = (_address, options) => Object.assign(this, { options });

  connect() {
    const nth = ++this.nth;
    this.options.auth((auth) => nth === this.nth && this.isAlive() && this.arrives(wired(auth), nth));
  }

  disconnect() {
    this.gone("io client disconnect");
  }

  timeout() {
    return {
      emitWithAck: (name, body) =>
        new Promise((resolve, reject) => {
          const lost = () => reject(new Error("socket has been disconnected"));
          if (!this.isConnected) return lost();
          const act = () => {
            const [reply, delivered] = this.answer(name, wired(body));
            this.acks.push({ lost, act: () => resolve(reply, delivered?.()) });
          };
          this.#requests.push({ lost, act });
        }),
    };
  }

  isAlive() {
    return true;
  }

  get connected() {
    return this.isConnected;
  }

  // The gateway's end.

  /** A CONNECT has been welcomed: continue after `from`, or report what the log has lost of the position. */
  resumed(resume, from) {
    if (!resume) return;
    if (!from) this.lost();
    else if (from.offset < resume.offset) this.rolledBack(from.offset, resume.offset);
  }

  /** Serve some of the log to a client that reads it. Return whether it does. */
  read() {
    if (!this.isConnected || !this.reader.isReading) return false;
    this.reader.read([...this.subscribed.keys()], (entry) => this.event(entry, true), (...range) => this.gap("trimmed", ...range));
    return true;
  }

  gap(reason, from, to, covers, more = {}) {
    const numbers = { from, to, count: from === null ? null : to - from + 1, bytes: 0 };
    const gone = covers.filter((entry) => this.log.log[entry.offset - 1] !== entry).map(idOf);
    this.emit("gap", { patterns: [...this.subscribed.keys()], ...numbers, reason, recoverable: false, ...more, covers: covers.map(idOf), gone });
  }

  event(entry, replayed) {
    this.send(() => this.receive("event", entry.topic, entry, metaOf(entry, replayed)));
  }

  cursor(offset = this.log.head) {
    this.emit("cursor", { epoch: this.log.epoch, offset });
  }

  moving() {
    if (this.isConnected) this.emit("status", { moving: { reason: "deploy", within_s: 0.01 } });
  }

  /** The log is another one, and earlier events count as lost. */
  lost() {
    this.reader.end();
    this.gap("log_lost", null, null, this.log.history);
    this.cursor();
  }

  /** The log continues after an offset, without its last events. @param {number} end @param {number} was its head before */
  rolled(end, was) {
    const { place, position } = this.reader.cutBack(end, was);
    if (place > end) this.rolledBack(end, place);
    else this.cursor(position);
  }

  rolledBack(end, to) {
    this.gap("rolled_back", end + 1, to, this.log.gone(end, to), { epoch: this.log.epoch });
  }

  // The network.

  /** A message on its way arrives, or a reader gets some of the log. Return whether there was anything. */
  step() {
    const ways = [this.lane, ...(this.holds ? [] : [this.acks, this.#requests])].filter(({ length }) => length);
    const nth = this.log.world.below(ways.length + (this.isConnected && this.reader.isReading ? 1 : 0));
    if (!ways[nth]) return this.read();
    ways[nth].shift().act();
    return true;
  }

  /** Return how many messages are under way. */
  underWay() {
    return this.lane.length + (this.holds ? 0 : this.acks.length + this.#requests.length);
  }

  cut() {
    this.gone("transport close");
  }

  gone(reason) {
    const was = this.isConnected;
    this.isConnected = this.reader.isReading = false;
    this.nth++;
    const lost = [this.lane, this.acks, this.#requests].flatMap((way) => way.splice(0));
    if (was && this.isAlive()) this.tell("disconnect", reason);
    for (const each of lost) each.lost?.();
  }

  send(act) {
    this.lane.push({ act });
  }

  emit(name, body, delivered) {
    this.send(() => {
      delivered?.();
      this.receive(name, wired(body));
    });
  }

  receive(name, ...args) {
    for (const listener of this._any) listener(name, ...args);
  }

  tell(name, ...args) {
    this._listeners.get(name)?.(...args);
  }
}

class ModelGateway extends Log {
  /** The outcome of the next CONNECT. @type {"accept" | "refuse" | "fail" | "silence"} */
  next = "accept";
  /** Whether the application can say of each second pattern only that it does not know whether it allows it. */
  doubts = false;
  /** Called with each pattern that has ended or was refused in that way, as its events may come late. */
  ended = () => {};
  /** Whether the application has heard that a pattern is active. A late acknowledgement of one that has ended since says nothing. */
  isPromised = (pattern) => pattern in this.acknowledged;
  /** The position from which each pattern was acknowledged last, once that is delivered. */
  acknowledged = {};
  /** Called with the position after which the last so many events of a pattern come, once that is delivered. */
  began = () => {};
  /** Called with each position that a CONNECT resumes from, and the patterns that it carries. */
  resumes = () => {};
  /** Called with each event of the log that the page says its handlers have had, as a trace reports it. */
  handled = () => {};
  #asks = new Map();
  #welcomed = false;
  #link = new Link(this);
  /** The events that a full queue leaves out, while it is full. @type {object[] | null} */
  #dropped = null;
  /** The newest events of topics that it keeps for policy `latest`. @type {Map<string, object>} */
  #kept = new Map();
  #sent = 0;

  constructor(world) {
    super(world);
    Object.assign(this.#link, { arrives: (auth, nth) => this.#connectArrives(auth, nth), answer: (name, body) => this.#answer(name, body) });
  }

  io = this.#link.io;

  #connectArrives({ resume, subscriptions }, nth) {
    const link = this.#link;
    const how = this.next;
    this.next = "accept";
    const fails = (error) => link.send(() => nth === link.nth && link.tell("connect_error", error));
    if (how === "silence") return;
    if (how === "fail") return fails(new Error("xhr poll error"));
    if (how === "refuse") return fails(Object.assign(new Error("no"), { data: { code: "unauthorized", message: "no", retry: false } }));
    link.isConnected = true;
    this.#welcomed = false;
    if (resume) this.resumes(resume, subscriptions.map(({ pattern }) => pattern));
    const results = subscriptions.map(({ pattern }) => this.#doubt(pattern) ?? { pattern, ok: true });
    subscriptions = subscriptions.filter((_, nth) => results[nth].ok);
    link.subscribed = new Map(subscriptions.map(({ pattern, overflow }) => [pattern, overflow]));
    this.#dropped = null;
    this.#kept.clear();
    const { from, welcome } = this.resume(resume);
    const base = from ?? { epoch: this.epoch, offset: this.head };
    link.reader.begin(base.offset, Boolean(from));
    for (const { pattern, since } of subscriptions) if (since) results.find((each) => each.pattern === pattern).after = link.reader.past(pattern, since);
    link.emit("welcome", { session: `s${nth}`, ...welcome, subscriptions: results }, () => {
      this.#welcomed = true;
      for (const { pattern, since } of subscriptions) this.#began(pattern, since, { ...base, ...since }, results.find((each) => each.pattern === pattern).after);
    });
    link.resumed(resume, from);
  }

  #answer(name, body) {
    const { pattern, overflow, since, epoch: of, ask, handled } = body;
    const { epoch, head } = this;
    const { reader, subscribed } = this.#link;
    if (name === "handled") {
      const asked = this.#asks.get(ask);
      if (handled && of === asked.epoch) this.handled(asked.entry);
      return [{ ok: true }];
    }
    if (name === "replay") return [this.replay(body)];
    if (name === "unsubscribe") {
      this.relieve();
      subscribed.delete(pattern);
      reader.leave(pattern);
      return [{ ok: true }];
    }
    const refusal = this.#doubt(pattern);
    if (refusal) return [refusal];
    // A gap is of the subscriptions that there were.
    this.relieve();
    const isNew = !subscribed.has(pattern);
    subscribed.set(pattern, overflow);
    let offset = head;
    let start;
    if (since) {
      start = reader.past(pattern, since, isNew);
      // An epoch of which nothing is left is not in the lineage, and brings all of the log. The page asks for the part that it lacks.
      if (!since.last) offset = Math.max(start, since.epoch === undefined ? since.offset : this.lines.shared(epoch, since));
    }
    else if (isNew) reader.join(pattern);
    return [{ ok: true, pattern, epoch, offset: head, after: start }, () => this.#began(pattern, since, { epoch, offset }, start)];
  }

  /** A pattern is acknowledged. The last so many events come after a position that only the gateway knows. */
  #began(pattern, since, { epoch, offset }, start) {
    if (since) this.began(pattern, { epoch, offset: start });
    if (since?.last) offset = start;
    if (!this.isPromised(pattern)) this.acknowledged[pattern] = { epoch, offset };
  }

  /** Return the refusal of a pattern of which the application cannot say whether it allows it. */
  #doubt(pattern) {
    if (!this.doubts || this.world.below(2)) return;
    this.ended(pattern);
    return { pattern, ok: false, error: { code: "authorize_failed", message: "no", retry: true, retry_after_s: 1, action: "subscribe to", name: pattern } };
  }

  /** Whether the client gets events as they are published. */
  get #isLive() {
    return this.#link.isConnected && !this.#link.reader.isReading;
  }

  /** The client has other grants, and the application was asked again. The notice may overtake events. */
  reauthorize() {
    const { isConnected, subscribed, reader, lane } = this.#link;
    if (!this.#welcomed || !isConnected) return;
    this.relieve();
    for (const pattern of [...subscribed.keys()]) {
      const ended = this.#doubt(pattern);
      if (!ended) continue;
      subscribed.delete(pattern);
      reader.leave(pattern);
      lane.splice(this.world.below(lane.length + 1), 0, { act: () => this.#link.receive("status", { ended: [ended] }) });
    }
  }

  publish(topic) {
    const entry = this.write(topic);
    if (!this.#isLive) return;
    const policies = [...this.#link.subscribed].filter(([pattern]) => matches(pattern, topic)).map(([, policy]) => policy);
    if (!policies.length) return;
    if (!this.#dropped) this.#link.event(entry, false);
    else if (policies.every((policy) => policy === "drop")) this.#dropped.push(entry);
    else if (policies.includes(undefined)) this.#readFrom(entry.offset - 1);
    else {
      this.#kept.delete(topic);
      this.#kept.set(topic, entry);
    }
  }

  /** An event for this client alone, which is in no log. @param {string} topic */
  send(topic) {
    if (!this.#link.isConnected) return;
    const sent = ++this.#sent;
    this.#link.send(() => this.#link.receive("event", topic, { sent }, { id: `s${sent}`, time: 0 }));
  }

  /** Ask the page whether handlers have had an event of the log, in its turn or ahead of messages on their way. */
  ask() {
    const entry = this.log[this.world.below(this.head)];
    if (!this.#link.isConnected || !entry) return;
    const ask = this.#asks.size;
    this.#asks.set(ask, { entry, epoch: this.epoch });
    const act = () => this.#link.receive("handled", { ask, offset: entry.offset });
    if (this.#welcomed && this.world.below(2)) this.#link.acks.push({ act });
    else this.#link.send(act);
  }

  /** The client's queue is full for policies `drop` and `latest`, or is not any more. */
  full() {
    if (!this.#isLive) return;
    if (this.#dropped) this.relieve();
    else this.#dropped = [];
  }

  /** Report the events that a full queue has left out, and send those that it has kept. */
  relieve() {
    const left = this.#dropped;
    const kept = [...this.#kept.values()];
    this.#dropped = null;
    this.#kept.clear();
    if (left?.length) this.#reportLeft(left);
    for (const entry of kept) this.#link.event(entry, false);
  }

  #reportLeft(left) {
    const patterns = [...this.#link.subscribed.keys()].filter((pattern) => left.some(({ topic }) => matches(pattern, topic)));
    const [{ offset: from }, { offset: to }] = [left[0], left.at(-1)];
    this.#link.gap("overflow", from, to, left, { patterns, count: left.length, recoverable: true });
  }

  /** The client lags, and the log brings its next events. */
  behind() {
    if (this.#isLive) this.#readFrom(this.head);
  }

  #readFrom(offset) {
    this.relieve();
    this.#link.reader.begin(offset, true);
  }

  /** Redis comes back empty. */
  lose() {
    this.relieve();
    this.empty();
    if (this.#link.isConnected) this.#link.lost();
  }

  /** Another Redis process continues the log, without its last events. @param {number} without */
  roll(without) {
    this.relieve();
    const was = this.head;
    const end = this.cutBack(without);
    if (this.#link.isConnected) this.#link.rolled(end, was);
  }

  heartbeat() {
    if (this.#isLive && !this.#dropped) this.#link.cursor();
  }

  moving = () => this.#link.moving();
  deliver = () => this.#link.step();
  cut = () => this.#link.cut();
}

export const idOf = ({ epoch, offset }) => `${epoch}-${offset}`;
export const metaOf = (entry, replayed) => ({ id: idOf(entry), time: 1, offset: entry.offset, ...(replayed && { replayed }) });
export const matches = (pattern, topic) => pattern === "*" || pattern === "#" || pattern === `${topic}.#`;

/**
 * Received or reported: the events that one pattern's handler sees, compared with the log.
 *
 * - Each event of the line comes once, or a gap has reported that it will not, or, for a handler that wants the newest, a newer one of its topic comes.
 * - Events come in the order of the line, where the pattern has asked for no past and lets go of none.
 * - Nothing comes from before the position that the pattern has asked for.
 * - What was shown and is no longer on the line is reported before anything of the other line, and never shown after that.
 * - Each position that a CONNECT resumes from is true: what lies before it was received or reported, what lies above it was not shown.
 */
export class Oracle {
  #seen = new Set();
  /** Epoch → the highest offset that was shown and not reported as gone. */
  #shown = new Map();
  /** Reported by gaps: at all, for good, and as no longer in the log. */
  #reported = new Set();
  #lost = new Set();
  #gone = new Set();
  /** Shown before a log was reported as lost that has lost only the epoch of the client's position. A past may repeat it. */
  #again = new Set();
  /** Brought by repairs above the client's position, which has not passed them. */
  #ahead = new Set();
  #last = null;
  #isLast;
  /** Where the past of the last so many events begins. @type {{ epoch: string, offset: number } | undefined} */
  #start;
  /** The position of the page when it listened. */
  newFrom = Infinity;
  /** Where the promise begins. It is set once, when the application was notified that the subscription is active. */
  base = null;

  /** @param {ModelGateway} gateway @param {string} pattern @param {boolean} [ordered] @param {{ epoch: string, offset: number } | null} [asked] nothing up to there may come from the past; undefined: as the gateway says @param {boolean} [newest] a newer event of the topic may replace one */
  constructor(gateway, pattern, ordered = true, asked, newest = false) {
    Object.assign(this, { gateway, pattern, ordered, asked, newest });
    this.#isLast = asked === undefined;
  }

  /** The past of the last so many events begins after a position, or after a lower one where it is asked for again; null: after one that the page does not know. */
  began(position) {
    if (!this.#isLast) return;
    if (!position) this.#isLast = false;
    else if (position.offset < (this.#start?.offset ?? this.newFrom)) this.#start = position;
    else this.#start ??= { ...position, offset: this.newFrom };
    this.asked &&= this.#isLast ? this.#start : null;
  }

  /** Another handler of the pattern asks for the past. What this one saw may come once more. */
  past() {
    this.ordered = this.#isLast = false;
    this.asked = null;
    this.#again = new Set(this.#seen);
  }

  promised() {
    this.base ??= this.gateway.acknowledged[this.pattern];
    // Of several pasts that were asked for, all are acknowledged.
    if (this.#isLast) this.asked = this.#start;
  }

  #fail(text) {
    throw new Error(`${this.pattern}: ${text}`);
  }

  /** The application was notified of a gap. */
  reported({ reason, patterns, covers, gone, lost, recoverable, from, to, epoch }) {
    // The gateway names what is gone. Of what only a repair has brought, the client finds out itself.
    if (reason === "rolled_back" && !gone.length) {
      if (!patterns.includes(this.pattern)) return;
      const isGone = (at) => from <= at.offset && at.offset <= to && !this.gateway.lines.leads(at, { epoch, offset: Infinity });
      covers = gone = [...this.#ahead].filter((id) => isGone(positionOf(id)));
    }
    if (reason === "upstream") this.#fail("told of a loss by a gateway that has reported none");
    if (reason === "overflow" && !patterns.includes(this.pattern)) return;
    if (reason === "rolled_back" && !covers.length) this.#fail("told of a log that has lost nothing");
    // The client may ask for a pattern before it gets an older gap, and assumes that the gap left out nothing of it.
    const overtaken = "*" in this.gateway.acknowledged || "#" in this.gateway.acknowledged;
    if (lost && reason === "overflow" && !overtaken && covers.every((id) => this.#seen.has(id))) this.#fail("told of a loss that there is not");
    for (const id of covers) {
      this.#reported.add(id);
      if (lost || !recoverable) this.#lost.add(id);
    }
    if (reason !== "rolled_back" && reason !== "log_lost") return;
    for (const id of gone) {
      this.#gone.add(id);
      this.#ahead.delete(id);
    }
    if (reason === "log_lost") {
      this.#again = new Set(this.#seen);
      this.#isLast = false;
      this.asked = null;
    }
    this.#last = null;
    this.#shown.clear();
    for (const id of this.#seen) if (!this.#gone.has(id) && !this.#ahead.has(id)) this.#show(positionOf(id));
  }

  #show({ epoch, offset }) {
    this.#shown.set(epoch, Math.max(offset, this.#shown.get(epoch) ?? 0));
  }

  /** The client is at a position. What a repair had brought below it is on the line, or was reported as lost. */
  #pass(position) {
    for (const id of this.#ahead) {
      const at = positionOf(id);
      if (at.offset > position.offset) continue;
      if (!this.gateway.lines.leads(at, position)) this.#fail(`${idOf(position)} after ${id}, which a repair had brought and the log has lost, and nothing was told`);
      this.#ahead.delete(id);
      this.#show(at);
    }
  }

  /** The handler saw an event; `isAhead`: by a repair, above the client's position; `isPast`: below it. */
  saw(entry, isAhead = false, isPast = false) {
    const id = idOf(entry);
    const { lines } = this.gateway;
    if (!isAhead) this.#pass(entry);
    if (isPast && this.asked && lines.leads(entry, this.asked)) this.#fail(`${id}, which it has not asked for`);
    if (this.#seen.has(id) && !this.#again.delete(id)) this.#fail(`${id} twice`);
    if (this.#gone.has(id)) this.#fail(`${id} after it was told as gone`);
    for (const [epoch, offset] of this.#shown) {
      const other = { epoch, offset };
      if (!lines.leads(other, entry) && !lines.leads(entry, other)) this.#fail(`${id} after ${idOf(other)}, of another line, and nothing was told`);
    }
    if (this.ordered) {
      if (this.#last && !lines.leads(this.#last, entry)) this.#fail(`${id} after ${idOf(this.#last)}`);
      this.#complete(entry, entry.offset - 1, this.#reported);
      this.#last = entry;
    }
    this.#seen.add(id);
    if (isAhead) this.#ahead.add(id);
    else this.#show(entry);
  }

  /** Whether the handler saw an event. */
  had(entry) {
    return this.#seen.has(idOf(entry));
  }

  /** A CONNECT resumes from a position, and carries these patterns. */
  resumed(position, patterns) {
    for (const [epoch, offset] of this.#shown) {
      if (!this.gateway.lines.leads({ epoch, offset }, position)) this.#fail(`resumes from ${idOf(position)} after ${epoch}-${offset}`);
    }
    // Events that the client holds, until newer ones may have replaced them, are below its position.
    if (patterns.includes(this.pattern) && this.base && !this.newest) this.#complete(position, position.offset, this.#reported);
  }

  /** In the end everything on the line was received, or reported for good. */
  end() {
    const { epoch, head } = this.gateway;
    this.#pass({ epoch, offset: head });
    this.#complete({ epoch, offset: head }, head, this.#lost);
  }

  /** Everything on the line to a position, up to an offset, was received or reported. */
  #complete(position, upTo, reported) {
    if (!this.base) return;
    const { lines, history } = this.gateway;
    const from = Math.min(this.base.offset, lines.shared(this.base.epoch, position));
    // The acknowledgement may overtake the word that the log has lost its end. It promises nothing of the line before.
    const ahead = lines.order(this.base.epoch) > lines.order(position.epoch) && { ...this.base, offset: Infinity };
    for (const entry of history) {
      if (ahead && !lines.leads(entry, ahead)) continue;
      if (entry.offset <= from || entry.offset > upTo || !matches(this.pattern, entry.topic) || !lines.leads(entry, position)) continue;
      const id = idOf(entry);
      const isReplaced = this.newest && history.some((newer) => newer.topic === entry.topic && newer.offset > entry.offset && lines.leads(entry, newer));
      if (!this.#seen.has(id) && !reported.has(id) && !isReplaced) this.#fail(`${id} neither received nor told, at ${idOf(position)}`);
    }
  }
}

const positionOf = (id) => {
  const [epoch, offset] = id.split("-");
  return { epoch, offset: Number(offset) };
};
