/**
 * A browser with several tabs, and a gateway for several clients, in the virtual time of model-gateway.js. Nothing here knows how tabs share.
 *
 * The browser has locks and channels as the standards say. A message of a channel reaches every other object of its name, in the order of
 * one sender; locks are granted in order of the requests, end with their tab, and can be stolen. A tab may be killed, frozen (its messages
 * wait) or put into the back/forward cache. The gateway keeps a log with its lineage and answers as docs/protocol.md says.
 */
import { wired } from "../listened.js";
import { Link, Log, matches } from "../model-gateway.js";

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
  /** The ids of what is never sent again: requests that a function of the application has answered, and ephemeral publishes. @type {string[]} */
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
    for (const each of this.present) if (each !== but) each.emit("presence", notice);
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

/** One client's connections. */
class Client extends Link {
  constructor(gateway, tab, options) {
    super(gateway);
    Object.assign(this, { gateway, tab, options });
  }

  isAlive() {
    return this.tab.alive;
  }

  busy() {
    return this.underWay() || this.reader.isReading;
  }

  describe() {
    return `${[...this.subscribed.keys()]} under way ${this.underWay()} ${this.reader.isReading ? "reading" : "live"}${this.tab.frozen ? " frozen" : ""}`;
  }

  gone(reason) {
    this.gateway.clients.delete(this);
    this.gateway.absent(this);
    super.gone(reason);
  }

  arrives({ resume, subscriptions }, nth) {
    const { gateway } = this;
    const { head } = gateway;
    this.isConnected = true;
    gateway.clients.add(this);
    const refused = subscriptions.slice(gateway.limit ?? subscriptions.length).map(({ pattern }) => pattern);
    this.subscribed = new Map(subscriptions.slice(0, gateway.limit).map(({ pattern, overflow }) => [pattern, overflow]));
    const { from, welcome } = gateway.resume(resume);
    this.emit("welcome", {
      session: `s${gateway.nth++}-${nth}`, ...welcome, limits: { ...welcome.limits, max_subscriptions: gateway.limit },
      subscriptions: subscriptions.map(({ pattern }) => (refused.includes(pattern) ? { pattern, ...gateway.full() } : { pattern, ok: true })),
    });
    this.reader.begin(from?.offset ?? head, Boolean(from));
    if (!resume) for (const { pattern, since } of subscriptions) if (since) this.reader.past(pattern, since);
    this.resumed(resume, from);
  }

  answer(name, body) {
    const { pattern, since } = body;
    const { gateway, subscribed } = this;
    const { epoch, head } = gateway;
    if (name === "unsubscribe") {
      subscribed.delete(pattern);
      return [{ ok: true, pattern }];
    }
    if (name === "request" || body.ephemeral) return [{ ok: true, data: gateway.asked.push(body.id) }];
    if (name === "publish") return [gateway.append(body)];
    if (name === "presence") return [gateway.presence(this, body)];
    if (name === "replay") return [gateway.replay(body)];
    const isNew = !subscribed.has(pattern);
    if (subscribed.size >= gateway.limit && isNew) return [gateway.full()];
    subscribed.set(pattern, body.overflow);
    if (since) this.reader.past(pattern, since, isNew);
    else if (isNew) this.reader.join(pattern);
    return [{ ok: true, pattern, epoch, offset: head }];
  }

  read() {
    const reads = super.read();
    if (!this.reader.isReading && this.gateway.world.below(2)) this.heartbeat();
    return reads;
  }

  published(entry) {
    if (!this.reader.isReading && [...this.subscribed.keys()].some((pattern) => matches(pattern, entry.topic))) this.event(entry, false);
  }

  heartbeat() {
    if (!this.reader.isReading && !this.lane.length) this.cursor();
  }
}
