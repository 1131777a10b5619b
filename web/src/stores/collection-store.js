/**
 * The store of a live collection: plain objects, kept in step by events, without Backbone.
 *
 * In: the application's `load`, events of `<topic>.*.*` (or of `pattern`, read by `mapping`). Out: snapshots {items, status,
 * error, dropped}. An item that changes is another object. Rules, as for LiveCollection:
 * - an event or an answer with a version that is not above the item's changes nothing, unless the log has lost its end;
 * - items that were loaded, or came with the page, before the subscription was acknowledged are loaded again then, and after that only
 *   when events were lost for good (live/follow.js);
 * - events that arrive while a load is under way are applied at once, and again after its answer.
 *
 * @import { Change, LiveOptions } from "../live/rules.js"
 * @import { Gate, HeadgateEvent } from "../gate.js"
 * @import { Source, Store } from "./snapshot-store.js"
 * @typedef {{ [name: string]: any }} Item
 *
 * @typedef {object} CollectionOnlyOptions
 * @property {(how: { signal: AbortSignal }) => Item[] | Promise<Item[]>} [load] brings all items from the server
 * @property {readonly Item[]} [initial] that came with the page
 * @property {string} [pattern] default `<topic>.*.*`
 * @property {string} [idAttribute] default `id`
 * @property {number} [limit] items that are held, default 10000; beyond it the first are dropped, and counted
 * @typedef {CollectionOnlyOptions & Pick<LiveOptions, "mapping" | "versionAttribute" | "resyncSpreadMs">} CollectionOptions
 *
 * @typedef {CollectionOptions & { idAttribute: string, versionAttribute: string, limit: number, initial: readonly Item[] }} Checked with the defaults
 *
 * @typedef {"loading" | "behind" | "current" | "failed"} CollectionStatus `loading`: there is no answer yet. `behind`: events may
 *   be missing in what there is. `current`: none is. `failed`: it could not be loaded, or the gateway refuses the pattern.
 * @typedef {object} CollectionSnapshot
 * @property {readonly Item[]} items
 * @property {CollectionStatus} status
 * @property {any} error
 * @property {number} dropped
 */
import { MAX_DELAY_MS } from "../base/timer.js";
import { COUNT } from "../language/options.js";
import { Follow } from "../live/follow.js";
import { byConvention, isStale, sound } from "../live/rules.js";
import { checkPattern, Dispatcher } from "../index.js";
import { createStore } from "./snapshot-store.js";
import { SubscriptionWatch } from "./subscription-watch.js";

/** @type {import("../language/options.js").Table} */
const OPTIONS = {
  load: ["function"],
  initial: ["object", []],
  pattern: ["string"],
  idAttribute: ["string", "id"],
  limit: [COUNT, 10_000],
  mapping: ["function"],
  versionAttribute: ["string", "version"],
  resyncSpreadMs: [[0, MAX_DELAY_MS]],
};

/**
 * @param {Gate} gate
 * @param {string} topic prefix of the topics, such as `orders`
 * @param {CollectionOptions} [given]
 * @returns {Store<CollectionSnapshot> & { reload: () => void }} `reload`: load again now, if anybody listens
 * @throws {HeadgateError} `invalid_pattern`
 * @throws {TypeError} an option that breaks its rule
 */
export function collectionStore(gate, topic, given = {}) {
  /** @type {Checked} */
  const options = gate._checkOptions("collectionStore", OPTIONS, given);
  const { initial } = options;
  const pattern = checkPattern(options.pattern ?? `${checkPattern(topic)}.*.*`);
  /** @type {CollectionSource | undefined} */
  let source;
  /** @type {CollectionSnapshot} */
  const first = Object.freeze({ items: initial, status: initial.length ? "behind" : "loading", error: null, dropped: 0 });
  const store = createStore(first, (changed) => {
    source = new CollectionSource(gate, pattern, { ...options, mapping: options.mapping ?? byConvention(topic) }, first, changed);
    return source;
  });
  return { ...store, reload: () => source?.reload() };
}

/** @implements {Source<CollectionSnapshot>} */
class CollectionSource {
  #options;
  #changed;
  #follow;
  #watch;
  #follower = Object.assign(new Dispatcher(), { fetch: (/** @type {any} */ options) => this.#fetch(options) });
  #leaving = new AbortController();
  /** By the text of their ids, as topics have them. @type {Map<string, Item>} */
  #items = new Map();
  #dropped = 0;
  #asked = false;
  #answered;
  /** Why the latest load failed. @type {unknown} */
  #failure;
  #snapshot;
  #hasNews = false;

  /** @param {Gate} gate @param {string} pattern @param {Checked & { mapping: import("../live/rules.js").Mapping }} options @param {CollectionSnapshot} first @param {() => void} changed */
  constructor(gate, pattern, options, first, changed) {
    const { load, mapping, resyncSpreadMs } = options;
    this.#options = options;
    this.#changed = changed;
    this.#snapshot = first;
    this.#answered = first.items.length > 0;
    for (const item of first.items) this.#set(item);
    this.#follow = new Follow(this.#follower, () => Boolean(load) || this.#items.size > 0);
    const take = (/** @type {HeadgateEvent} */ event) => {
      const change = mapping(event);
      if (change && change.op !== "ignore") this.#take(change);
    };
    this.#follow.start(gate, pattern, take, { refetch: Boolean(load), ...(resyncSpreadMs === undefined ? {} : { resyncSpreadMs }) });
    this.#watch = new SubscriptionWatch(gate, pattern, changed);
    // Behind the follower's own: it has asked for what it needs when it is told.
    this.#follower.listenTo(gate, "delivery:gap", () => changed());
    // The acknowledgement that it waits for may be long in coming now.
    this.#follower.listenTo(gate, "connection:down", () => this.#asked || this.reload());
    void this.#begin(gate, pattern);
  }

  read() {
    const { status, error, dropped } = { status: this.#status(), error: this.#failure ?? this.#watch.error, dropped: this.#dropped };
    const before = this.#snapshot;
    const items = this.#hasNews ? [...this.#items.values()] : before.items;
    if (this.#hasNews || status !== before.status || error !== before.error) this.#snapshot = { items, status, error, dropped };
    this.#hasNews = false;
    return this.#snapshot;
  }

  end() {
    this.#leaving.abort();
    this.#follow.stop();
    this.#watch.stop();
    this.#follower.stopListening();
  }

  /** Load again now. */
  reload() {
    if (this.#options.load && !this.#leaving.signal.aborted) this.#fetch({});
  }

  /** Load at once or, if the acknowledgement is near, with it: an earlier answer would have to be loaded again. @param {Gate} gate @param {string} pattern */
  async #begin(gate, pattern) {
    const isNear = gate.status === "live" || gate.status === "catching_up";
    if (!isNear) this.reload();
    try {
      await gate.subscribed(pattern);
    } catch {
      // It cannot follow, but it can show something.
      if (isNear) this.reload();
    }
    this.#changed();
  }

  /** @param {any} options of the follower */
  #fetch(options) {
    this.#asked = true;
    return this.#follow.fetch(options, (how) => void this.#load(how));
  }

  /** @param {any} how of the follower */
  async #load(how) {
    const { signal } = this.#leaving;
    try {
      const answer = await this.#options.load?.({ signal });
      if (signal.aborted) return how.finish();
      if (!Array.isArray(answer)) throw TypeError("headgate: load must bring an array of items");
      this.#replace(answer, how.rolledBack !== undefined);
      how.success();
    } catch (error) {
      if (!signal.aborted) this.#failure = error;
      how.error();
    }
    this.#changed();
  }

  /** @returns {CollectionStatus} */
  #status() {
    if (this.#failure ?? this.#watch.error) return "failed";
    if (this.#follow.current) return "current";
    return this.#answered ? "behind" : "loading";
  }

  /** @param {Item[]} answer @param {boolean} rolledBack the answer counts whatever its versions are */
  #replace(answer, rolledBack) {
    const { idAttribute, versionAttribute } = this.#options;
    const before = this.#items;
    this.#items = new Map();
    this.#dropped = 0;
    for (const item of answer) {
      const present = before.get(String(item[idAttribute]));
      this.#set(present && !rolledBack && isStale(item, present, versionAttribute, false) ? present : item);
    }
    this.#failure = undefined;
    this.#answered = true;
    this.#hasNews = true;
  }

  /** @param {Change} change */
  #take(change) {
    this.#apply(change);
    if (this.#follow.busy) this.#follow.keep(() => this.#apply(change));
  }

  /** @param {Change} change */
  #apply({ op, id, attributes: given = {} }) {
    const { idAttribute, versionAttribute } = this.#options;
    const attributes = sound(given, idAttribute);
    const key = this.#items.has(String(id)) ? String(id) : String(attributes[idAttribute] ?? id);
    const present = this.#items.get(key);
    if (!present) {
      if (op === "upsert") this.#set({ [idAttribute]: id, ...attributes });
    } else if (op === "remove") {
      if (!isStale(given, present, versionAttribute, false)) this.#delete(key);
    } else if (!isStale(attributes, present, versionAttribute)) {
      const item = { ...present, ...attributes };
      if (String(item[idAttribute]) !== key) this.#delete(key);
      this.#set(item);
    }
  }

  /** @param {Item} item */
  #set(item) {
    this.#items.set(String(item[this.#options.idAttribute]), item);
    if (this.#items.size > this.#options.limit) {
      this.#items.delete(/** @type {string} */ (this.#items.keys().next().value));
      this.#dropped++;
    }
    this.#news();
  }

  /** @param {string} key */
  #delete(key) {
    this.#items.delete(key);
    this.#news();
  }

  #news() {
    this.#hasNews = true;
    this.#changed();
  }
}
