/**
 * The store of the last events of a pattern, in log order.
 *
 * In: events and gaps of the gate. Out: snapshots {events, missed, gap, status, error}. Repaired events are inserted where they belong. Events that the log has
 * lost (`rolled_back`) are removed, because others come in their place. `missed` is the number of lost events, as far as it is known, and `gap` the latest gap
 * that is not being repaired.
 *
 * @import { HeadgateError } from "../language/errors.js"
 * @import { Gap } from "../language/protocol.js"
 * @import { Fate } from "../session/gaps.js"
 * @import { SubscriptionState } from "../subscriptions/subscription.js"
 * @import { HeadgateEvent, SubscribeOptions } from "../gate.js"
 * @import { Source, Store } from "./snapshot-store.js"
 * @typedef {object} EventsSnapshot
 * @property {readonly HeadgateEvent[]} events oldest first
 * @property {number} missed
 * @property {(Gap & Fate) | null} gap
 * @property {SubscriptionState} status
 * @property {HeadgateError | null} error
 * @typedef {SubscribeOptions & { limit?: number, enabled?: boolean }} EventsStoreOptions `limit`: the most events, default 100; `enabled: false` subscribes to
 *   nothing
 */
import { COUNT, SUBSCRIBE } from "../language/options.js";
import { LOG_LOST, ROLLED_BACK } from "../language/protocol.js";
import { checkPattern, Gate } from "../index.js";
import { EventList } from "./event-list.js";
import { createStore } from "./snapshot-store.js";

/** @type {import("../language/options.js").Table} */
const OPTIONS = { ...SUBSCRIBE, limit: [COUNT, 100], enabled: ["boolean", true] };
/** @type {EventsSnapshot} */
const NOTHING = Object.freeze({ events: Object.freeze([]), missed: 0, gap: null, status: "idle", error: null });

/**
 * @param {Gate} gate
 * @param {string | null} pattern null: not known yet, as with `enabled: false`
 * @param {EventsStoreOptions} [given]
 * @returns {Store<EventsSnapshot>}
 * @throws {HeadgateError} `invalid_pattern`
 * @throws {TypeError} an option that breaks its rule
 */
export function eventsStore(gate, pattern, given = {}) {
  const { limit, enabled, ...options } = Gate._optionsOf(gate, "eventsStore", OPTIONS, given);
  if (pattern === null || !enabled) return createStore(NOTHING, () => ({ read: () => NOTHING, end() {} }));
  checkPattern(pattern);
  return createStore(NOTHING, (changed) => new EventsSource(gate, pattern, limit, options, changed));
}

/** @implements {Source<EventsSnapshot>} */
class EventsSource {
  /** Only `end` removes its handlers (dispatcher.js). */
  _isPart = true;
  #gate;
  #pattern;
  #list;
  #subscription;
  #changed;
  #snapshot = NOTHING;
  #hasNews = false;

  /** @param {Gate} gate @param {string} pattern @param {number} limit @param {SubscribeOptions} options @param {() => void} changed */
  constructor(gate, pattern, limit, options, changed) {
    this.#gate = gate;
    this.#pattern = pattern;
    this.#changed = changed;
    this.#list = new EventList(limit);
    gate.on({ "delivery:gap": this.#takeGap, "status:change": () => changed(), [`subscription:${pattern}`]: () => changed() }, this);
    this.#subscription = gate._subscribe(pattern, options, (_data, event) => {
      this.#list.put(event);
      this.#news();
    }, true);
  }

  read() {
    const { status, error } = this.#gate._standing(this.#pattern);
    const { events, ...before } = this.#snapshot;
    if (this.#hasNews) this.#snapshot = { ...before, events: this.#list.list(), status, error };
    else if (status !== before.status || error !== before.error) this.#snapshot = { ...before, events, status, error };
    this.#hasNews = false;
    return this.#snapshot;
  }

  end() {
    this.#subscription.close();
    this.#gate.off(null, null, this);
  }

  #news() {
    this.#hasNews = true;
    this.#changed();
  }

  /** @param {Gap & Partial<Fate> & { where?: string }} gap */
  #takeGap(gap) {
    const { patterns, reason, count, from, to, lost = false, repairing = false, where } = gap;
    // Events that a loop has discarded, or of other patterns, are not missing here.
    if (where || (patterns.length && !patterns.includes(this.#pattern))) return;
    if (reason === ROLLED_BACK) this.#list.rollBack(/** @type {number} */ (from));
    else if (reason === LOG_LOST) this.#list.restart();
    if (repairing) return;
    const missed = lost && reason !== ROLLED_BACK ? (count ?? (from && to ? to - from + 1 : 0)) : 0;
    this.#snapshot = { ...this.#snapshot, gap: { ...gap, lost, repairing }, missed: this.#snapshot.missed + missed };
    this.#news();
  }
}
