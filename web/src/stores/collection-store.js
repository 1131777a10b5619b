/**
 * The store of a live collection: plain objects, kept in step by events, without Backbone.
 *
 * In: the application's `load`, events of `<topic>.*.*` (or of `pattern`, read by `mapping`). Out: snapshots {items, status,
 * error, dropped}. An item that changes is another object. Rules, as for LiveCollection:
 * - an event or an answer with a version that is not above the item's changes nothing, unless the log has lost its end;
 * - items that were loaded, or came with the page, before the subscription was acknowledged are loaded again then, and after that only
 *   when events were lost for good (load.js), unless the answer names its position;
 * - events that arrive while a load is under way are applied at once, and again after its answer.
 *
 * @import { Change, LiveOptions } from "../live/rules.js"
 * @import { Gate } from "../gate.js"
 * @import { Source, Store } from "./snapshot-store.js"
 * @typedef {{ [name: string]: any }} Item
 *
 * @typedef {object} CollectionOnlyOptions
 * @property {(how: { signal: AbortSignal }) => any} [load] brings all items from the server: an array, or {items, position}
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
import { byConvention, isStale, sound } from "../live/rules.js";
import { checkPattern, load as follow } from "../index.js";
import { createStore } from "./snapshot-store.js";

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
  #load;
  /** By the text of their ids, as topics have them. @type {Map<string, Item>} */
  #items = new Map();
  #dropped = 0;
  /** Whether the log has lost its end since the latest answer, which then counts whatever its versions are. */
  #isRolledBack = false;
  #snapshot;
  #hasNews = false;

  /** @param {Gate} gate @param {string} pattern @param {Checked & { mapping: import("../live/rules.js").Mapping }} options @param {CollectionSnapshot} first @param {() => void} changed */
  constructor(gate, pattern, options, first, changed) {
    const { load, mapping, resyncSpreadMs } = options;
    this.#options = options;
    this.#changed = changed;
    this.#snapshot = first;
    for (const item of first.items) this.#set(item);
    this.#load = follow(gate, pattern, load, {
      reset: (answer) => this.#replace(answer),
      apply: (_data, event) => {
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
    // Not where the acknowledgement is near: an earlier answer would have to be loaded again.
    if (!gate.isUp) this.reload();
  }

  read() {
    const { status: is, error } = this.#load;
    const before = this.#snapshot;
    const status = is === "closed" || (is === "loading" && this.#options.initial.length) ? "behind" : is;
    const items = this.#hasNews ? [...this.#items.values()] : before.items;
    if (this.#hasNews || status !== before.status || error !== before.error) this.#snapshot = { items, status, error, dropped: this.#dropped };
    this.#hasNews = false;
    return this.#snapshot;
  }

  end() {
    this.#load.close();
  }

  /** Load again now. */
  reload() {
    if (this.#options.load) this.#load.reload();
  }

  /** @param {any} answer items, or an object with them */
  #replace(answer) {
    const items = Array.isArray(answer) ? answer : answer?.items;
    if (!Array.isArray(items)) throw TypeError("headgate: load must bring an array of items, or {items, position}");
    const { idAttribute, versionAttribute } = this.#options;
    const before = this.#items;
    this.#items = new Map();
    this.#dropped = 0;
    for (const item of items) {
      const present = before.get(String(item[idAttribute]));
      this.#set(present && !this.#isRolledBack && isStale(item, present, versionAttribute, false) ? present : item);
    }
    this.#isRolledBack = false;
    this.#hasNews = true;
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
