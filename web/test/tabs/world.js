/**
 * A browser with several tabs, and a gateway for several clients, in the virtual time of model-gateway.js. Nothing here knows how tabs share.
 *
 * The browser has locks and channels as the standards say. A message of a channel reaches every other object of its name, in the order of
 * one sender; locks are granted in order of the requests, end with their tab, and can be stolen. A tab may be killed, frozen (its messages
 * wait) or put into the back/forward cache. The gateway keeps a log with its lineage and answers as docs/protocol.md says.
 */
import { Listened, wired } from "../listened.js";
import { Lines } from "../model-gateway.js";

const idOf = ({ epoch, offset }) => `${epoch}-${offset}`;
const metaOf = (entry, replayed) => ({ id: idOf(entry), time: 1, offset: entry.offset, ...(replayed && { replayed }) });
export const matches = (pattern, topic) => pattern === "*" || pattern === `${topic}.#`;

export class Browser {
  /** Open channels. */
  #channels = new Set();
  /** Messages under way: channel, then the messages of each sender. */
  #mail = new Map();
  /** Lock name → holder; requests that wait. */
  #held = new Map();
  #requests = [];
  /** Called with each message of a channel. */
  overheard = () => {};

  /** @param {number} [window] messages that a tab may have and not have acknowledged */
  constructor(world, window) {
    Object.assign(this, { world, window });
  }

  /** Return a tab's platform. */
  open() {
    const browser = this;
    const tab = { alive: true, frozen: false, listeners: [] };
    tab.platform = {
      window: this.window,
      newId: () => `t${world(this).below(2 ** 30)}`,
      watch: (event, act, { signal }) => tab.listeners.push({ event, act, signal }),
      locks: {
        request(name, options, act) {
          if (typeof options === "function") return this.request(name, {}, options);
          return new Promise((resolve, reject) => {
            const request = { tab, name, options, act, resolve, reject };
            if (!tab.alive) return;
            if (options.signal?.aborted) return reject(abortError());
            options.signal?.addEventListener("abort", () => {
              const at = browser.#requests.indexOf(request);
              if (at < 0) return;
              browser.#requests.splice(at, 1);
              reject(abortError());
            });
            browser.#requests.push(request);
          });
        },
        query: async () => ({ held: [...browser.#held.keys()].map((name) => ({ name })) }),
      },
      BroadcastChannel: class {
        onmessage = () => {};
        tab = tab;
        constructor(name) {
          this.name = name;
          browser.#channels.add(this);
        }
        postMessage(message) {
          if (!tab.alive || !browser.#channels.has(this)) return;
          browser.overheard(message);
          for (const each of browser.#channels) {
            if (each === this || each.name !== this.name) continue;
            const key = [each, this];
            let [, lane] = [...browser.#mail].find(([[to, from]]) => to === each && from === this) ?? [];
            if (!lane) {
              lane = [];
              browser.#mail.set(key, lane);
            }
            lane.push(wired(message));
          }
        }
        close() {
          browser.#channels.delete(this);
        }
      },
    };
    return tab;
  }

  /** Deliver one message, or settle one lock. Return whether there was one. */
  step() {
    for (const [key, lane] of this.#mail) if (!lane.length || !key[0].tab.alive || !this.#channels.has(key[0])) this.#mail.delete(key);
    const lanes = [...this.#mail].filter(([[to]]) => !to.tab.frozen);
    const grant = this.#grantable();
    const nth = this.world.below(lanes.length + (grant ? 1 : 0));
    if (nth < lanes.length) {
      const [[to], lane] = lanes[nth];
      to.onmessage({ data: lane.shift() });
      return true;
    }
    if (grant) this.#grant(grant);
    return Boolean(grant);
  }

  #grantable() {
    const seen = new Set();
    for (const request of this.#requests) {
      const { name, options, tab } = request;
      if (options.steal || options.ifAvailable || (!this.#held.has(name) && !seen.has(name) && !tab.frozen)) return request;
      seen.add(name);
    }
  }

  #grant(request) {
    const { name, options, act, tab, resolve, reject } = request;
    this.#requests.splice(this.#requests.indexOf(request), 1);
    const held = this.#held.get(name);
    if (held && options.ifAvailable) return resolve(act(null));
    if (held) held.steal();
    const mine = { tab, steal: () => reject(abortError()) };
    this.#held.set(name, mine);
    const release = () => this.#held.get(name) === mine && this.#held.delete(name);
    Promise.resolve(act({ name })).then((result) => {
      release();
      resolve(result);
    }, reject);
  }

  /** The process of a tab ends. */
  kill(tab) {
    tab.alive = false;
    for (const channel of [...this.#channels]) if (channel.tab === tab) this.#channels.delete(channel);
    for (const [name, { tab: of }] of [...this.#held]) if (of === tab) this.#held.delete(name);
    this.#requests = this.#requests.filter((request) => request.tab !== tab);
  }

  /** An event of a tab's page. */
  tell(tab, event) {
    for (const each of tab.listeners) if (each.event === event && !each.signal.aborted) each.act();
  }
}

const world = (browser) => browser.world;
const abortError = () => Object.assign(new Error("aborted"), { name: "AbortError" });

/** The log, and its connected clients. */
export class Gateway {
  lines = new Lines();
  epoch = this.lines.begin(null);
  log = [];
  lineage = [{ epoch: this.epoch, first: 1 }];
  history = [];
  first = 1;
  /** @type {Set<Client>} */
  clients = new Set();
  /** The ids of requests that a function of the application has answered. @type {string[]} */
  asked = [];
  /** Numbers that tabs have published: how often each was appended. @type {Map<number, number>} */
  appended = new Map();
  /** Ids that Redis remembers. @type {Map<string, object>} */
  ids = new Map();
  /** Clients present in the one topic. All have one user. @type {Set<Client>} */
  present = new Set();
  versions = 0;
  /** How many CONNECTs there were. */
  nth = 0;

  constructor(world) {
    this.world = world;
  }

  get head() {
    return this.log.length;
  }

  /** A socket.io-client for a tab. */
  io = (tab) => (_address, options) => new Client(this, tab, options);

  publish(topic) {
    const entry = { topic, epoch: this.epoch, offset: this.head + 1 };
    this.log.push(entry);
    this.history.push(entry);
    for (const client of this.clients) client.published(entry);
  }

  /** A tab publishes a number. */
  append({ topic, data, id }) {
    const known = this.ids.get(id);
    if (known) return { ok: true, ...known, duplicate: true };
    this.appended.set(data, (this.appended.get(data) ?? 0) + 1);
    this.publish(topic);
    const place = { epoch: this.epoch, offset: this.head };
    if (id) this.ids.set(id, place);
    return { ok: true, ...place, duplicate: false };
  }

  /** A client enters or leaves, and the others are notified. */
  presence(client, { topic, act }) {
    if (act === "leave") this.absent(client);
    else if (act === "enter" && !this.present.has(client)) {
      this.present.add(client);
      this.#tellPresence(topic, client);
    }
    const members = this.#members();
    return { ok: true, topic, copy: "c", version: this.versions, count: members.length, members, next: null };
  }

  absent(client) {
    if (this.present.delete(client)) this.#tellPresence("rooms.7");
  }

  #members() {
    return this.present.size ? [["ann", this.present.size, 1, null]] : [];
  }

  #tellPresence(topic, but) {
    const members = this.#members();
    const notice = { topic, copy: "c", base: this.versions, version: ++this.versions, members, left: members.length ? [] : ["ann"] };
    for (const each of this.present) if (each !== but) each.tell("presence", notice);
  }

  trim() {
    this.first = Math.max(this.first, this.head + 1 - this.world.below(4));
  }

  endOf(epoch) {
    const nth = this.lineage.findIndex((each) => each.epoch === epoch);
    return nth < 0 ? null : nth === this.lineage.length - 1 ? this.head : this.lineage[nth + 1].first - 1;
  }

  /** Another Redis process goes on with the log, without the last events of it. */
  roll(without) {
    const was = this.head;
    const end = Math.max(0, was - without);
    this.log.length = end;
    this.first = Math.min(this.first, end + 1);
    this.lineage = this.lineage.filter(({ first }) => first <= end + 1);
    this.epoch = this.lines.begin({ epoch: this.lineage.at(-1).epoch, end });
    this.lineage.push({ epoch: this.epoch, first: end + 1 });
    for (const client of this.clients) client.rolled(end, was);
  }

  /** Redis comes back empty. */
  lose() {
    this.epoch = this.lines.begin(null);
    this.lineage = [{ epoch: this.epoch, first: 1 }];
    this.log = [];
    this.first = 1;
    for (const client of this.clients) client.lost();
  }

  /** Something arrives somewhere. Return whether there was anything. */
  deliver() {
    const ready = [...this.clients].filter((client) => client.tab.alive && !client.tab.frozen && client.busy());
    return ready.length > 0 && ready[this.world.below(ready.length)].step();
  }

  /** For the message of a failure. */
  describe() {
    return [...this.clients].map((client) => client.describe()).join("; ");
  }

  /** Subscriptions of one client. @type {number | undefined} */
  limit;

  /** The refusal of one too many; a client that knows its limits never asks for it. */
  full() {
    this.refusals++;
    return { ok: false, error: { code: "limit_reached", message: "full", retry: false, name: "subscriptions", limit: this.limit } };
  }

  refusals = 0;

  any() {
    return [...this.clients][this.world.below(this.clients.size)];
  }
}

/** One client's connections: socket.io-client's interface, and the gateway's end of it. */
class Client extends Listened {
  #lane = [];
  #acks = [];
  #requests = [];
  #subscribed = new Set();
  #reading = false;
  #position = 0;
  #base = 0;
  #starts = new Map();
  #nth = 0;

  constructor(gateway, tab, options) {
    super();
    Object.assign(this, { gateway, tab, options });
  }

  /** The policy of each pattern; `catch_up` is undefined. @type {Map<string, string | undefined>} */
  policies = new Map();

  /** The client's subscriptions. */
  get patterns() {
    return this.#subscribed;
  }

  connect() {
    const nth = ++this.#nth;
    if (!this.tab.alive) return;
    this.options.auth((auth) => {
      if (nth === this.#nth && this.tab.alive) this.#arrives(wired(auth), nth);
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
          if (!this.gateway.clients.has(this)) return lost();
          this.#requests.push({ lost, act: () => this.#acks.push({ lost, act: ((reply) => () => resolve(reply))(this.#answer(name, wired(body))) }) });
        }),
    };
  }

  busy() {
    return this.#lane.length || this.#acks.length || this.#requests.length || this.#reading;
  }

  step() {
    const ways = [this.#lane, this.#acks, this.#requests].filter(({ length }) => length);
    const nth = this.gateway.world.below(ways.length + (this.#reading ? 1 : 0));
    if (ways[nth]) ways[nth].shift().act();
    else this.#read();
    return true;
  }

  describe() {
    return `${[...this.#subscribed]} lane ${this.#lane.length} acks ${this.#acks.length} requests ${this.#requests.length} ${this.#reading ? `reading at ${this.#position}` : "live"}${this.tab.frozen ? " frozen" : ""}`;
  }

  cut() {
    this.#gone("transport close");
  }

  #gone(reason) {
    const was = this.gateway.clients.delete(this);
    this.gateway.absent(this);
    this.#reading = false;
    this.#nth++;
    const lost = [this.#lane, this.#acks, this.#requests].flatMap((way) => way.splice(0));
    if (was && this.tab.alive) this._listeners.get("disconnect")?.(reason);
    for (const each of lost) each.lost?.();
  }

  #arrives({ resume, subscriptions }, nth) {
    const { gateway } = this;
    const { epoch, head } = gateway;
    gateway.clients.add(this);
    const refused = subscriptions.slice(gateway.limit ?? subscriptions.length).map(({ pattern }) => pattern);
    this.#subscribed = new Set(subscriptions.slice(0, gateway.limit).map(({ pattern }) => pattern));
    this.policies = new Map(subscriptions.map(({ pattern, overflow }) => [pattern, overflow]));
    this.#starts.clear();
    const end = resume && gateway.endOf(resume.epoch);
    const from = end === null || !resume ? null : { epoch, offset: Math.min(resume.offset, end) };
    const base = from ?? { epoch, offset: head };
    this.#emit("welcome", {
      session: `s${gateway.nth++}-${nth}`, user: "ann", epoch, offset: head, heartbeat_s: 10, from,
      resumed: resume ? from?.offset === resume.offset && from.offset >= gateway.first - 1 : null,
      limits: { max_payload_bytes: 1000, inbound_per_s: 1000, inbound_burst: 1000, max_subscriptions: gateway.limit },
      subscriptions: subscriptions.map(({ pattern }) => (refused.includes(pattern) ? { pattern, ...gateway.full() } : { pattern, ok: true })),
    });
    this.#reading = Boolean(from);
    this.#position = this.#base = base.offset;
    if (!resume) for (const { pattern, since } of subscriptions) if (since) this.#past(pattern, since);
    if (!resume) return;
    if (!from) this.lost();
    else if (from.offset < resume.offset) this.#rolledBack(from.offset, resume.offset);
  }

  #answer(name, body) {
    const { pattern, since, from, to, epoch: of } = body;
    const { gateway } = this;
    const { epoch, head } = gateway;
    if (name === "unsubscribe") {
      this.#subscribed.delete(pattern);
      this.policies.delete(pattern);
      return { ok: true, pattern };
    }
    if (name === "publish") return gateway.append(body);
    if (name === "request") return { ok: true, data: gateway.asked.push(body.id) };
    if (name === "presence") return gateway.presence(this, body);
    if (name === "replay") {
      const last = Math.min(to, of === undefined ? head : (gateway.endOf(of) ?? 0));
      const pageEnd = Math.min(last, from + this.gateway.world.below(3));
      const events = gateway.log.slice(from - 1, pageEnd).filter(({ topic, offset }) => offset >= gateway.first && matches(pattern, topic));
      return { ok: true, events: events.map((entry) => [entry.topic, entry, metaOf(entry, true)]), next: pageEnd < last ? pageEnd + 1 : null, epoch };
    }
    if (this.#subscribed.size >= gateway.limit && !this.#subscribed.has(pattern)) return gateway.full();
    this.#subscribed.add(pattern);
    this.policies.set(pattern, body.overflow);
    if (since) this.#past(pattern, since);
    else if (this.#reading) this.#starts.set(pattern, head);
    return { ok: true, pattern, epoch, offset: head };
  }

  #past(pattern, { offset, epoch }) {
    const { gateway } = this;
    const start = Math.min(offset, epoch === undefined ? gateway.head : (gateway.endOf(epoch) ?? 0));
    if (!this.#reading) {
      this.#base = gateway.head;
      this.#starts.clear();
    } else {
      this.#base = Math.max(this.#base, this.#position);
      for (const [other, begin] of this.#starts) this.#starts.set(other, Math.max(begin, this.#position));
    }
    this.#starts.set(pattern, start);
    this.#position = Math.min(this.#base, ...this.#starts.values());
    this.#reading = true;
  }

  #read() {
    const { gateway } = this;
    if (this.#position < gateway.first - 1) {
      this.#gap("trimmed", this.#position + 1, gateway.first - 1, gateway.log.slice(this.#position, gateway.first - 1));
      this.#position = gateway.first - 1;
    }
    for (const entry of gateway.log.slice(this.#position, this.#position + 1 + gateway.world.below(4))) {
      const wanted = [...this.#subscribed].some((each) => matches(each, entry.topic) && entry.offset > (this.#starts.get(each) ?? this.#base));
      if (wanted) this.#event(entry, true);
      this.#position = entry.offset;
    }
    const even = Math.max(this.#base, ...this.#starts.values());
    if (this.#position >= even) this.#starts.clear();
    if (this.#position < Math.max(gateway.head, even)) return;
    this.#reading = false;
    if (gateway.world.below(2)) this.heartbeat();
  }

  published(entry) {
    if (!this.#reading && [...this.#subscribed].some((pattern) => matches(pattern, entry.topic))) this.#event(entry, false);
  }

  heartbeat() {
    const { epoch, head } = this.gateway;
    if (!this.#reading && !this.#lane.length) this.#emit("cursor", { epoch, offset: head });
  }

  tell(name, body) {
    this.#emit(name, body);
  }

  moving() {
    this.#emit("status", { moving: { reason: "deploy", within_s: 0.01 } });
  }

  lost() {
    this.#reading = false;
    this.#starts.clear();
    this.#gap("log_lost", null, null, this.gateway.history);
    this.#emit("cursor", { epoch: this.gateway.epoch, offset: this.gateway.head });
  }

  rolled(end, was) {
    const place = this.#reading ? Math.max(this.#position, this.#base, ...this.#starts.values()) : was;
    this.#base = Math.min(this.#base, end);
    for (const [pattern, start] of this.#starts) this.#starts.set(pattern, Math.min(start, end));
    this.#position = this.#reading ? Math.min(this.#position, end) : end;
    if (place > end) this.#rolledBack(end, place);
    else this.#emit("cursor", { epoch: this.gateway.epoch, offset: this.#position });
  }

  #rolledBack(end, to) {
    const { gateway } = this;
    const gone = gateway.history.filter((entry) => entry.offset > end && entry.offset <= to && gateway.log[entry.offset - 1] !== entry);
    this.#gap("rolled_back", end + 1, to, gone, { epoch: gateway.epoch });
  }

  #gap(reason, from, to, covers, more = {}) {
    const numbers = { from, to, count: from === null ? null : to - from + 1, bytes: 0 };
    const gone = covers.filter((entry) => this.gateway.log[entry.offset - 1] !== entry).map(idOf);
    this.#emit("gap", { patterns: [...this.#subscribed], ...numbers, reason, recoverable: false, ...more, covers: covers.map(idOf), gone });
  }

  #event(entry, replayed) {
    this.#lane.push({ act: () => this.#receive("event", entry.topic, wired(entry), metaOf(entry, replayed)) });
  }

  #emit(name, body) {
    this.#lane.push({ act: () => this.#receive(name, wired(body)) });
  }

  #receive(name, ...args) {
    for (const listener of this._any) listener(name, ...args);
  }
}
