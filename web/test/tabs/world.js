/**
 * A browser with several tabs, and a gateway for several clients, in the virtual time of model-gateway.js. Nothing here knows how tabs share.
 *
 * The browser has locks and channels as the standards say. A message of a channel reaches every other object of its name, in the order of
 * one sender; locks are granted in order of the requests, end with their tab, and can be stolen. A tab may be killed, frozen (its messages
 * wait) or put into the back/forward cache. The gateway keeps a log with its lineage and answers as docs/protocol.md says.
 */
import { Listened, wired } from "../listened.js";
import { idOf, Log, matches, metaOf, Reader } from "../model-gateway.js";

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
export class Gateway extends Log {
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

  /** A socket.io-client for a tab. */
  io = (tab) => (_address, options) => new Client(this, tab, options);

  publish(topic) {
    const entry = this.write(topic);
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

  /** Another Redis process continues the log, without its last events. */
  roll(without) {
    const was = this.head;
    const end = this.cutBack(without);
    for (const client of this.clients) client.rolled(end, was);
  }

  /** Redis comes back empty. */
  lose() {
    this.empty();
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
  #nth = 0;

  constructor(gateway, tab, options) {
    super();
    Object.assign(this, { gateway, tab, options });
    this.reader = new Reader(gateway);
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

  /** Whether the gateway answers no request for now. */
  holds = false;

  busy() {
    if (this.holds) return this.#lane.length || this.reader.isReading;
    return this.#lane.length || this.#acks.length || this.#requests.length || this.reader.isReading;
  }

  step() {
    const ways = [this.#lane, ...(this.holds ? [] : [this.#acks, this.#requests])].filter(({ length }) => length);
    const nth = this.gateway.world.below(ways.length + (this.reader.isReading ? 1 : 0));
    if (ways[nth]) ways[nth].shift().act();
    else this.#read();
    return true;
  }

  describe() {
    return `${[...this.#subscribed]} lane ${this.#lane.length} acks ${this.#acks.length} requests ${this.#requests.length} ${this.reader.isReading ? "reading" : "live"}${this.tab.frozen ? " frozen" : ""}`;
  }

  cut() {
    this.#gone("transport close");
  }

  #gone(reason) {
    const was = this.gateway.clients.delete(this);
    this.gateway.absent(this);
    this.reader.isReading = false;
    this.#nth++;
    const lost = [this.#lane, this.#acks, this.#requests].flatMap((way) => way.splice(0));
    if (was && this.tab.alive) this._listeners.get("disconnect")?.(reason);
    for (const each of lost) each.lost?.();
  }

  #arrives({ resume, subscriptions }, nth) {
    const { gateway } = this;
    const { head } = gateway;
    gateway.clients.add(this);
    const refused = subscriptions.slice(gateway.limit ?? subscriptions.length).map(({ pattern }) => pattern);
    this.#subscribed = new Set(subscriptions.slice(0, gateway.limit).map(({ pattern }) => pattern));
    this.policies = new Map(subscriptions.map(({ pattern, overflow }) => [pattern, overflow]));
    const { from, welcome } = gateway.resume(resume);
    this.#emit("welcome", {
      session: `s${gateway.nth++}-${nth}`, ...welcome, limits: { ...welcome.limits, max_subscriptions: gateway.limit },
      subscriptions: subscriptions.map(({ pattern }) => (refused.includes(pattern) ? { pattern, ...gateway.full() } : { pattern, ok: true })),
    });
    this.reader.begin(from?.offset ?? head, Boolean(from));
    if (!resume) for (const { pattern, since } of subscriptions) if (since) this.reader.past(pattern, since);
    if (!resume) return;
    if (!from) this.lost();
    else if (from.offset < resume.offset) this.#rolledBack(from.offset, resume.offset);
  }

  #answer(name, body) {
    const { pattern, since } = body;
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
    if (name === "replay") return gateway.replay(body);
    if (this.#subscribed.size >= gateway.limit && !this.#subscribed.has(pattern)) return gateway.full();
    const isNew = !this.#subscribed.has(pattern);
    this.#subscribed.add(pattern);
    this.policies.set(pattern, body.overflow);
    if (since) this.reader.past(pattern, since, isNew);
    else if (isNew) this.reader.join(pattern);
    return { ok: true, pattern, epoch, offset: head };
  }

  #read() {
    this.reader.read([...this.#subscribed], (entry) => this.#event(entry, true), (...range) => this.#gap("trimmed", ...range));
    if (!this.reader.isReading && this.gateway.world.below(2)) this.heartbeat();
  }

  published(entry) {
    if (!this.reader.isReading && [...this.#subscribed].some((pattern) => matches(pattern, entry.topic))) this.#event(entry, false);
  }

  heartbeat() {
    const { epoch, head } = this.gateway;
    if (!this.reader.isReading && !this.#lane.length) this.#emit("cursor", { epoch, offset: head });
  }

  tell(name, body) {
    this.#emit(name, body);
  }

  moving() {
    this.#emit("status", { moving: { reason: "deploy", within_s: 0.01 } });
  }

  lost() {
    this.reader.end();
    this.#gap("log_lost", null, null, this.gateway.history);
    this.#emit("cursor", { epoch: this.gateway.epoch, offset: this.gateway.head });
  }

  rolled(end, was) {
    const { place, position } = this.reader.cutBack(end, was);
    if (place > end) this.#rolledBack(end, place);
    else this.#emit("cursor", { epoch: this.gateway.epoch, offset: position });
  }

  #rolledBack(end, to) {
    const { gateway } = this;
    this.#gap("rolled_back", end + 1, to, gateway.gone(end, to), { epoch: gateway.epoch });
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
