/**
 * Follow: how one model or collection follows a pattern, and which of its fetches have to be repeated.
 *
 * In: the gate's acknowledgement, its notices of loss, the follower's own fetches. Out: the pattern's events to `take`, and calls of
 * the follower's `fetch`. It adds handlers to the gate with `listenTo`, and takes away those and no others.
 *
 * An answer shows the server's state at one moment; events complete it only from the moment at which the subscription is in
 * force. So the state that was fetched, or came with the page, before the acknowledgement is fetched again once it is there, with
 * the same options; so is everything after a gap that nothing can repair. One request at a time: an old answer that came last would
 * undo a new one. A repeated fetch that fails is told by Backbone's `error` event, and not tried again before the next loss. Events that
 * arrive while a request is under way are applied at once, and again after its answer, which may be older.
 *
 * @import { Gate, HeadgateEvent } from "./gate.js"
 * @import { State } from "./session.js"
 * @import { LiveOptions } from "./live.js"
 * @typedef {{ listenTo: Function, stopListening: Function, fetch: (options: any) => unknown }} Follower
 * @typedef {{ options: any, adds: boolean, sure: boolean }} Asked a fetch. adds: it leaves in place what others brought; sure: it began
 *   while the subscription was in force, and nothing was lost since
 * @typedef {"idle" | "asking" | "active" | "refused"} Standing
 * @typedef {"follow" | "acknowledge" | "refuse" | "ask" | "restart" | "leave"} Step
 */
import { report } from "./dispatcher.js";
import { whenEnded } from "./live.js";

/** Fetches with `remove: false` (pages of a long list) that are remembered. */
const MAX_ASKED = 100;
/** Events that are kept for after an answer; beyond that another fetch is asked for. */
const MAX_KEPT = 10_000;

/**
 * Where the subscription stands. `active` outlasts a broken connection: if it resumes, nothing is missed, and if it does not, that is a
 * restart.
 * @type {Record<Standing, Partial<Record<Step, Standing>>>}
 */
export const FOLLOW = {
  idle: { follow: "asking" },
  asking: { acknowledge: "active", refuse: "refused", leave: "idle" },
  active: { refuse: "refused", restart: "asking", leave: "idle" },
  refused: { ask: "asking", leave: "idle" },
};

export class Follow {
  #follower;
  #holds;
  /** @type {Standing} */
  #standing = "idle";
  /** @type {{ gate: Gate, pattern: string, handlers: Record<string, Function>, spreadMs: number, refetch: boolean } | undefined} */
  #bound;
  /** @type {Asked[]} the fetches that the present state was made of: one that replaced everything, then what was added */
  #asked = [];
  /** @type {Asked | undefined} the one that is being repeated, until `fetch` has seen it */
  #repeating;
  /** @type {Set<number>} requests under way, numbered as they began */
  #running = new Set();
  #begun = 0;
  /** The latest of those that were answered and replaced everything: the answer to an older one undoes what it brought. */
  #latest = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #full = false;
  /** @type {(() => void)[]} */
  #kept = [];
  #overflown = false;

  /** @param {Follower} follower @param {() => boolean} holds whether it holds a state that may have come with the page */
  constructor(follower, holds) {
    this.#follower = follower;
    this.#holds = holds;
  }

  /** Whether a request is under way. */
  get busy() {
    return this.#running.size > 0;
  }

  /**
   * Follow a pattern, instead of the one before.
   * @param {Gate} gate
   * @param {string} pattern a valid one
   * @param {(event: HeadgateEvent) => void} take
   * @param {LiveOptions} options
   */
  start(gate, pattern, take, { resyncSpreadMs: spreadMs = 1000, refetch = true }) {
    this.stop();
    const handlers = {
      [pattern]: (/** @type {any} */ _data, /** @type {HeadgateEvent} */ event) => take(event),
      "delivery:gap": (/** @type {{ patterns?: string[], lost?: boolean, recoverable: boolean }} */ gap) => {
        const concerned = !gap.patterns?.length || gap.patterns.includes(pattern);
        if (concerned && (gap.lost ?? !gap.recoverable)) this.lost();
      },
      "connection:up": (/** @type {{ resumed: boolean | null }} */ { resumed }) => this.#connected(resumed),
      "state:change": (/** @type {State} */ state) => this.#changed(state, pattern),
    };
    this.#follower.listenTo(gate, handlers);
    this.#bound = { gate, pattern, handlers, spreadMs, refetch };
    this.#step("follow");
    void this.#ask();
  }

  /** Follow no more. */
  stop() {
    if (!this.#bound) return;
    const { gate, handlers } = this.#bound;
    this.#follower.stopListening(gate, handlers);
    this.#bound = undefined;
    this.#step("leave");
    clearTimeout(this.#timer);
    this.#timer = undefined;
    // Requests that are under way are not waited for; if they are answered, it is with an old state.
    this.#running.clear();
    this.#latest = ++this.#begun;
    this.#doubt();
  }

  /** The follower is another thing now: forget what was fetched for the one before. */
  forget() {
    this.#asked = [];
  }

  /**
   * Make one of the follower's fetches.
   * @param {any} options Backbone's
   * @param {(options: any) => any} make
   * @param {boolean} [adds] it leaves in place what was fetched before
   * @returns {any} as `make`
   */
  fetch(options, make, adds = false) {
    const asked = this.#repeating ?? this.#remember(options, adds);
    this.#repeating = undefined;
    asked.sure = this.#standing === "active";
    return this.request(options, make, adds);
  }

  /**
   * Make any request of the follower's.
   * @param {any} options Backbone's
   * @param {(options: any) => any} make called with options whose `settle` ends a request that nobody will answer
   * @param {boolean} [adds]
   * @param {() => void} [ended]
   * @returns {any} as `make`
   */
  request(options, make, adds = true, ended) {
    const number = ++this.#begun;
    this.#running.add(number);
    const how = whenEnded(options, () => {
      this.#running.delete(number);
      if (number < this.#latest) this.#doubt();
      else if (!adds) this.#latest = number;
      ended?.();
      this.#applyKept();
      // When Backbone has told `sync`.
      queueMicrotask(() => this.#repeat());
    });
    try {
      return make(how);
    } catch (error) {
      how.settle();
      throw error;
    }
  }

  /** Do something (again) when no request is under way. @param {() => void} apply */
  keep(apply) {
    if (this.#kept.length < MAX_KEPT) this.#kept.push(apply);
    else this.#overflown = true;
  }

  /** Events were lost for good. */
  lost() {
    this.#doubt();
    this.#askedForAll();
    if (!this.#bound?.refetch) return;
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.#repeat();
    }, Math.random() * this.#bound.spreadMs);
  }

  /** @param {Step} step @returns {boolean} whether there is such a step from here */
  #step(step) {
    const next = FOLLOW[this.#standing][step];
    this.#standing = next ?? this.#standing;
    return next !== undefined;
  }

  /** Wait for the acknowledgement. */
  async #ask() {
    const bound = this.#bound;
    let acknowledged = false;
    try {
      await bound?.gate.subscribed(bound.pattern);
      acknowledged = true;
    } catch {
      // The gate tells the application (`delivery:error`, or it was closed).
    }
    if (bound !== this.#bound || !this.#step(acknowledged ? "acknowledge" : "refuse") || !acknowledged) return;
    if (this.#holds()) this.#askedForAll();
    this.#repeat();
  }

  /** @param {boolean | null} resumed null: the gateway was not asked to */
  #connected(resumed) {
    if (resumed) return;
    const restarted = this.#step("restart");
    if (resumed === false || restarted) this.lost();
    if (restarted) void this.#ask();
  }

  /** @param {State} state @param {string} pattern */
  #changed({ connection, subscriptions }, pattern) {
    if (connection === "closed") this.stop();
    else if (subscriptions[pattern] === "refused") {
      if (this.#step("refuse")) this.#doubt();
    } else if (this.#step("ask")) void this.#ask();
  }

  /** What has been fetched may be older than the events that follow. */
  #doubt() {
    for (const asked of this.#asked) asked.sure = false;
  }

  /** What nobody has fetched is fetched as a whole. */
  #askedForAll(sure = false) {
    if (!this.#asked.length) this.#asked.push({ options: {}, adds: false, sure });
  }

  /** @param {any} options @param {boolean} adds @returns {Asked} */
  #remember(options, adds) {
    // The callbacks are the application's, for its own request.
    const { success: _success, error: _error, ...kept } = options ?? {};
    const asked = { options: kept, adds, sure: false };
    // What it adds to came with the page.
    if (adds && this.#holds()) this.#askedForAll(this.#standing === "active");
    this.#asked = adds ? this.#asked.filter((each) => !each.adds || keyOf(each) !== keyOf(asked)) : [];
    this.#asked.push(asked);
    if (this.#asked.length > MAX_ASKED) {
      this.#asked.splice(1, 1);
      if (!this.#full) report(RangeError(`headgate: more than ${MAX_ASKED} different fetches with remove: false; after a gap the oldest are not repeated`));
      this.#full = true;
    }
    return asked;
  }

  #applyKept() {
    if (this.busy) return;
    for (const apply of this.#kept.splice(0)) {
      try {
        apply();
      } catch (error) {
        // A handler of the application's; the others go on.
        report(error);
      }
    }
    if (this.#overflown) this.lost();
    this.#overflown = false;
  }

  /** Repeat the first fetch that has to be, if it is time; its end brings the next. */
  #repeat() {
    if (!this.#bound?.refetch || this.#standing !== "active" || this.#timer || this.busy) return;
    const asked = this.#asked.find(({ sure }) => !sure);
    if (!asked) return;
    // The first replaces everything, what was added to it too.
    if (asked === this.#asked[0]) this.#doubt();
    this.#repeating = asked;
    try {
      this.#follower.fetch({ ...asked.options });
    } catch (error) {
      report(error);
    }
    // Not seen by our `fetch`: a `fetch` of the application's own.
    if (this.#repeating) asked.sure = true;
    this.#repeating = undefined;
  }
}

/** Return what tells fetches apart. @param {Asked} asked */
function keyOf({ options: { url, data } }) {
  return JSON.stringify([url, data]);
}
