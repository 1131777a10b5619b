/**
 * The store of a live collection: plain objects that events keep up to date, without Backbone.
 *
 * In: the application's `load`, events of `<topic>.*.*` (or of `pattern`, read by `mapping`). Out: snapshots {items, status, error, dropped, pending}. A
 * changed item is a new object. Rules, as for LiveCollection:
 * - an event or an answer whose version is not above the item's changes nothing, unless the log has lost its end;
 * - items that were loaded, or came with the page, before the acknowledgement of the subscription are then loaded again, unless the answer has a position, and
 *   after that only when events were lost (load.js);
 * - events that arrive while a load is under way are applied at once, and again after its answer;
 * - a change that the page publishes through the store shows at once, on top of the server's items, until its event comes or it is refused.
 *
 * @import { Change, LiveOptions } from "../live/rules.js"
 * @import { HeadgateEvent, Receipt } from "../gate.js"
 * @import { Source, Store } from "./snapshot-store.js"
 * @typedef {{ [name: string]: any }} Item
 * @typedef {{ publish: (topic: string, data: unknown, options: { id: string }) => Promise<Receipt> }} Publishing
 *
 * @typedef {object} CollectionOnlyOptions
 * @property {(how: { signal: AbortSignal }) => any} [load] fetches all items from the server: an array, or {items, position}
 * @property {readonly Item[]} [initial] items that came with the page
 * @property {string} [pattern] default `<topic>.*.*`
 * @property {string} [idAttribute] default `id`
 * @property {Publishing} [outbox] of headgate/offline, which keeps what `publish` sends while there is no connection
 * @property {number} [limit] the most items, default 10000; beyond it the first are dropped and counted
 * @typedef {CollectionOnlyOptions & Pick<LiveOptions, "mapping" | "versionAttribute" | "resyncSpreadMs">} CollectionOptions
 *
 * @typedef {CollectionOptions & { idAttribute: string, versionAttribute: string, limit: number, initial: readonly Item[] }} Checked with the defaults
 *
 * @typedef {"loading" | "behind" | "current" | "failed"} CollectionStatus `loading`: there is no answer yet. `behind`: events may be missing in the items.
 *   `current`: none is missing. `failed`: the load fails, or the gateway refuses the pattern
 * @typedef {object} CollectionSnapshot
 * @property {readonly Item[]} items
 * @property {CollectionStatus} status
 * @property {any} error
 * @property {number} dropped
 * @property {readonly string[]} pending ids, as text, of the items that a publish under way has changed
 */
import { newId } from "../base/new-id.js";
import { MAX_DELAY_MS } from "../base/timer.js";
import { COUNT, OBJECTS, OUTBOX } from "../language/options.js";
import { byConvention, isStale, sound } from "../live/rules.js";
import { checkPattern, checkTopic, Gate, HeadgateError, load as follow, matches } from "../index.js";
import { createStore } from "./snapshot-store.js";

/** The most publishes under way. */
const MAX_PENDING = 1000;

/** @type {import("../language/options.js").Table} */
const OPTIONS = {
  load: ["function"],
  initial: [OBJECTS, []],
  pattern: ["string"],
  idAttribute: ["string", "id"],
  outbox: [OUTBOX],
  limit: [COUNT, 10_000],
  mapping: ["function"],
  versionAttribute: ["string", "version"],
  resyncSpreadMs: [[0, MAX_DELAY_MS]],
};

/**
 * @param {Gate} gate
 * @param {string} topic prefix of the topics, such as `orders`
 * @param {CollectionOptions} [given]
 * @returns {Store<CollectionSnapshot> & { reload: () => void, publish: (topic: string, data: unknown) => Promise<Receipt> }} `reload`: load again now, if there are
 *   listeners; `publish`: as gate.publish, and show the change at once
 * @throws {HeadgateError} `invalid_pattern`
 * @throws {TypeError} an option that breaks its rule
 */
export function collectionStore(gate, topic, given = {}) {
  /** @type {Checked} */
  const options = Gate._optionsOf(gate, "collectionStore", OPTIONS, given);
  const { initial } = options;
  const mapping = options.mapping ?? byConvention(checkPattern(topic));
  const pattern = checkPattern(options.pattern ?? `${checkPattern(topic)}.*.*`);
  /** @type {CollectionSnapshot} */
  const first = Object.freeze({ items: initial, status: initial.length ? "behind" : "loading", error: null, dropped: 0, pending: [] });
  const store = createStore(first, (/** @type {() => void} */ changed) => new CollectionSource(gate, pattern, { ...options, mapping }, first, changed));

  /** @param {string} topic @param {unknown} data */
  async function publish(topic, data) {
    const id = newId();
    const mine = store._source();
    mine?.begin(id, checkTopic(topic), data);
    try {
      const receipt = await (options.outbox ?? gate).publish(topic, data, { id });
      mine?.confirm(id, receipt);
      return receipt;
    } catch (error) {
      mine?.takeBack(id);
      throw error;
    }
  }

  return { ...store, reload: () => store._source()?.reload(), publish };
}

/** @implements {Source<CollectionSnapshot>} */
class CollectionSource {
  #options;
  #pattern;
  #changed;
  #load;
  /** Items by the text of their ids, as written in topics. @type {Map<string, Item>} */
  #items = new Map();
  #dropped = 0;
  /** Whether the log has lost its end since the latest answer. The next one then counts whatever its versions are. */
  #isRolledBack = false;
  #snapshot;
  #hasNews = false;
  /** Publishes of this page, until their events have come. @type {Map<string, { change: Change, receipt?: Receipt }>} */
  #pending = new Map();

  /** @param {Gate} gate @param {string} pattern @param {Checked & { mapping: import("../live/rules.js").Mapping }} options @param {CollectionSnapshot} first @param {() => void} changed */
  constructor(gate, pattern, options, first, changed) {
    const { load, mapping, resyncSpreadMs } = options;
    this.#options = options;
    this.#pattern = pattern;
    this.#changed = changed;
    this.#snapshot = first;
    for (const item of first.items) this.#set(item);
    this.#load = follow(gate, pattern, load, {
      reset: (answer) => this.#replace(answer),
      apply: (_data, event) => {
        this.#settle(event);
        const change = mapping(event);
        if (change && change.op !== "ignore") this.#apply(change);
      },
      lost: (rolledBack) => {
        this.#isRolledBack ||= Boolean(rolledBack);
      },
      changed,
      eager: true,
      loaded: !load && !first.items.length,
      resyncSpreadMs,
    });
    // Not while connected: the acknowledgement is near, and an answer from before it would have to be loaded again.
    if (!gate.isUp) this.reload();
  }

  read() {
    const { status: is, error } = this.#load;
    const before = this.#snapshot;
    const status = is === "closed" || (is === "loading" && this.#options.initial.length) ? "behind" : is;
    const { items, pending } = this.#hasNews ? this.#shown() : before;
    if (this.#hasNews || status !== before.status || error !== before.error) this.#snapshot = { items, status, error, dropped: this.#dropped, pending };
    this.#hasNews = false;
    return this.#snapshot;
  }

  end() {
    this.#load.close();
  }

  /**
   * A publish begins. Show what its event will change.
   * @param {string} id @param {string} topic @param {any} data
   * @throws {HeadgateError} `limit_reached` (`pending`)
   */
  begin(id, topic, data) {
    if (this.#pending.size >= MAX_PENDING) throw new HeadgateError("limit_reached", { name: "pending", limit: MAX_PENDING }, true);
    const change = matches(this.#pattern, topic) && this.#options.mapping({ topic, data, id, time: Date.now(), offset: null, replayed: false, pattern: this.#pattern });
    if (change && change.op !== "ignore") this.#pending.set(id, { change });
    this.#news();
  }

  /** A publish is in the log. Its event may have come. @param {string} id @param {Receipt} receipt */
  confirm(id, receipt) {
    const publish = this.#pending.get(id);
    if (publish) publish.receipt = receipt;
    // The event of a duplicate came long ago.
    if (receipt.duplicate) this.takeBack(id);
  }

  /** A publish was refused, or its outcome is unknown. Undo its change; if there is an event, it sets the change again. @param {string} id */
  takeBack(id) {
    if (this.#pending.delete(id)) this.#news();
  }

  /** Load again now. */
  reload() {
    if (this.#options.load) this.#load.reload();
  }

  /** Replace the items by those of an answer. @param {any} answer items, or an object with them */
  #replace(answer) {
    const items = Array.isArray(answer) ? answer : answer?.items;
    Gate._check("collectionStore: the answer of load, or its items,", OBJECTS, items);
    const { idAttribute, versionAttribute } = this.#options;
    const before = this.#items;
    this.#items = new Map();
    this.#dropped = 0;
    for (const item of items) {
      const present = before.get(String(item[idAttribute]));
      this.#set(present && !this.#isRolledBack && isStale(item, present, versionAttribute, false) ? present : item);
    }
    this.#isRolledBack = false;
    // A publish with a receipt is in the answer, or its event is applied after this.
    for (const [id, { receipt }] of this.#pending) if (receipt) this.#pending.delete(id);
    this.#hasNews = true;
  }

  /** An event has come. Its own publish is over, and so is each that precedes it in the log. @param {HeadgateEvent} event */
  #settle({ id, offset }) {
    if (!this.#pending.size) return;
    for (const [each, { receipt }] of this.#pending) if (each === id || (receipt && offset !== null && receipt.offset <= offset)) this.#pending.delete(each);
    this.#news();
  }

  /** Return the server's items, and on top of them the changes that this page has published. */
  #shown() {
    const items = this.#pending.size ? new Map(this.#items) : this.#items;
    /** @type {Set<string>} */
    const pending = new Set();
    for (const { change } of this.#pending.values()) {
      const key = this.#merge(items, change);
      if (key !== undefined) pending.add(key);
    }
    return { items: [...items.values()], pending: [...pending] };
  }

  /** @param {Change} change */
  #apply(change) {
    if (this.#merge(this.#items, change) === undefined) return;
    if (this.#items.size > this.#options.limit) this.#dropFirst();
    this.#news();
  }

  /** Change one item. Return its key; undefined: nothing changes. @param {Map<string, Item>} items @param {Change} change */
  #merge(items, { op, id, attributes: given = {} }) {
    const { idAttribute, versionAttribute } = this.#options;
    const attributes = sound(given, idAttribute);
    const key = items.has(String(id)) ? String(id) : String(attributes[idAttribute] ?? id);
    const present = items.get(key);
    if (op === "remove") {
      if (!present || isStale(given, present, versionAttribute, false)) return;
      items.delete(key);
      return key;
    }
    if (!present) return op === "upsert" ? put(items, { [idAttribute]: id, ...attributes }, idAttribute) : undefined;
    if (isStale(attributes, present, versionAttribute)) return;
    const item = { ...present, ...attributes };
    if (String(item[idAttribute]) !== key) items.delete(key);
    return put(items, item, idAttribute);
  }

  /** @param {Item} item */
  #set(item) {
    put(this.#items, item, this.#options.idAttribute);
    if (this.#items.size > this.#options.limit) this.#dropFirst();
    this.#news();
  }

  #dropFirst() {
    this.#items.delete(/** @type {string} */ (this.#items.keys().next().value));
    this.#dropped++;
  }

  #news() {
    this.#hasNews = true;
    this.#changed();
  }
}

/** @param {Map<string, Item>} items @param {Item} item @param {string} idAttribute */
function put(items, item, idAttribute) {
  const key = String(item[idAttribute]);
  items.set(key, item);
  return key;
}
