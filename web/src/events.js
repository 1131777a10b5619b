/**
 * `events(gate, pattern)`: the events of a pattern as a bounded async iterator.
 *
 * If the loop is slower than the events, they wait here. Beyond `limit` the oldest are discarded. `delivery:gap` reports how many and which, with
 * `where: "iterator"`, before the loop sees anything later.
 *
 * It is an explicit iterator and not an async generator, because a generator's `return()` waits for a pending `next()`, so a loop without events could not
 * be left. It is a function and not a method of the gate, so that the bundler of a page without such loops drops this file.
 *
 * @import { Gate, HeadgateEvent, SubscribeOptions, Subscription } from "./gate.js"
 * @typedef {SubscribeOptions & { limit?: number }} StreamOptions `limit`: events that may wait for the loop, default 256
 * @typedef {IteratorResult<HeadgateEvent, void>} Turn
 */
import { Machine } from "./base/machine.js";
import { checkArgument, checkOptions, COUNT, GATE, SUBSCRIBE } from "./language/options.js";
import { checkPattern } from "./language/topic.js";

/** @type {import("./language/options.js").Table} */
const OPTIONS = { ...SUBSCRIBE, limit: [COUNT, 256] };

/**
 * The states of a loop. It is `open` from its first turn on.
 * @type {Record<"new" | "open" | "ended", Partial<Record<"open" | "end", "new" | "open" | "ended">>>}
 */
export const STREAM = {
  new: { open: "open", end: "ended" },
  open: { end: "ended" },
  ended: {},
};

/**
 * Return the events of a pattern for a loop: `for await (const event of events(gate, "orders.#"))`. The pattern is subscribed from the first turn of the loop
 * until the loop is left, the signal aborts or the gate closes. The loop throws if the gateway refuses the pattern.
 * @param {Gate} gate
 * @param {string} pattern
 * @param {StreamOptions} [options]
 * @returns {AsyncIterableIterator<HeadgateEvent, void, void>}
 * @throws {HeadgateError} `invalid_pattern`
 * @throws {TypeError} an option that breaks its rule
 */
export function events(gate, pattern, options = {}) {
  checkArgument("events: gate", GATE, gate);
  return new EventStream(gate, checkPattern(pattern), checkOptions("events", OPTIONS, options));
}

/** @implements {AsyncIterableIterator<HeadgateEvent, void, void>} */
class EventStream {
  #life = new Machine(STREAM, "new");
  /** @type {HeadgateEvent[]} */
  #line = [];
  /** Pending calls of `next`. @type {((turn: Turn | Promise<Turn>) => void)[]} */
  #waiters = [];
  /** @type {{ count: number, from: number | null, to: number | null }} discarded since the last report */
  #lost = { count: 0, from: null, to: null };
  /** Why it has ended, until one `next` has thrown it. @type {unknown} */
  #error;
  /** @type {Subscription | undefined} */
  #subscription;

  /**
   * @param {Gate} gate
   * @param {string} pattern
   * @param {StreamOptions & { limit: number }} options
   */
  constructor(gate, pattern, { limit, signal, ...options }) {
    this.gate = gate;
    this.pattern = pattern;
    this.limit = limit;
    this.signal = signal;
    this.options = options;
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  /**
   * Wait for the next event and return it. The first call subscribes.
   * @returns {Promise<Turn>} rejected once when the subscription was refused
   */
  async next() {
    if (this.#life.offer("open")) this.#open();
    this.#tellLost();
    const value = this.#line.shift();
    if (value) return { value, done: false };
    if (this.#life.is("ended")) {
      const error = this.#error;
      this.#error = undefined;
      if (error) throw error;
      return { value: undefined, done: true };
    }
    return new Promise((resolve) => this.#waiters.push(resolve));
  }

  /** Leave: unsubscribe, and end every pending `next`. @returns {Promise<Turn>} */
  async return() {
    this.#line = [];
    this.#end();
    return { value: undefined, done: true };
  }

  /** @param {unknown} error @returns {Promise<Turn>} */
  async throw(error) {
    await this.return();
    throw error;
  }

  #open() {
    try {
      this.#subscription = this.gate._subscribe(this.pattern, this.options, (_data, event) => this.#take(event), true);
    } catch (error) {
      return this.#end(error);
    }
    if (this.signal?.aborted) return this.#end();
    this.signal?.addEventListener("abort", this.#leave);
    // `disconnected` means that the gate was closed, which is an end and not an error.
    void this.gate._ended(this.pattern, () => this.#life.is("ended")).then((error) => this.#end(error?.code === "disconnected" ? undefined : error));
  }

  #leave = () => void this.return();

  /** @param {HeadgateEvent} event */
  #take(event) {
    const waiter = this.#waiters.shift();
    if (waiter) return waiter({ value: event, done: false });
    this.#line.push(event);
    if (this.#line.length <= this.limit) return;
    const [{ offset }] = this.#line.splice(0, 1);
    this.#lost.count++;
    this.#lost.from ??= offset;
    this.#lost.to = offset ?? this.#lost.to;
  }

  #tellLost() {
    if (!this.#lost.count) return;
    const lost = this.#lost;
    this.#lost = { count: 0, from: null, to: null };
    const gap = { patterns: [this.pattern], bytes: null, reason: "overflow", recoverable: true, repairing: false, lost: false, where: "iterator", ...lost };
    this.gate.trigger("delivery:gap", gap);
  }

  /** No further event comes. Those that wait are still delivered. @param {unknown} [error] */
  #end(error) {
    if (!this.#life.offer("end")) return;
    this.#error = error;
    this.#subscription?.close();
    this.signal?.removeEventListener("abort", this.#leave);
    for (const resolve of this.#waiters.splice(0)) resolve(this.next());
  }
}
