/**
 * Follow: how one model or collection follows a pattern, and which of its fetches are repeated.
 *
 * In: the gate's acknowledgement, its notices of loss, the follower's own fetches. Out: the pattern's events to `take`, and calls of
 * the follower's `fetch`. It adds handlers to the gate with `listenTo`, and removes those and no others.
 *
 * An answer shows the server's state at one moment; events complete it only while the subscription is active. So a state that was
 * fetched, or came with the page, before the acknowledgement is stale: it is fetched again after it, with the same options. So is
 * everything after a gap that cannot be repaired. One request at a time: an old answer that came last would undo a new one. When a
 * repeated fetch fails, Backbone's `error` event says so, and the next attempt waits for the next loss. Events that arrive while a
 * request is under way are applied at once, and again after its answer, which may be older.
 *
 * When the log has lost its end (`rolled_back`), the version that is held may be of an event that no longer is. So the next answer
 * to each fetch that begins after it is taken whatever its version is, and events that came since are applied again after the first.
 *
 * @import { Gate, HeadgateEvent } from "../gate.js"
 * @import { LiveOptions } from "./rules.js"
 * @typedef {{ listenTo: Function, stopListening: Function, fetch: (options: any) => unknown }} Follower
 * @typedef {{ options: any, adds: boolean, current: boolean, rolledBack?: object }} Fetch adds: it leaves in place the models that
 *   other fetches brought; current: it began while the subscription was active, and nothing was lost since; rolledBack: the gap after
 *   which it has not been answered, if the log has lost its end
 * @typedef {"idle" | "requested" | "active" | "refused"} FollowState
 * @typedef {"follow" | "acknowledge" | "refuse" | "retry" | "restart" | "leave"} Step
 */
import { Machine } from "../base/machine.js";
import { report } from "../base/report.js";
import { MAX_DELAY_MS, startTimer } from "../base/timer.js";
import { checkRule } from "../language/options.js";
import { ROLLED_BACK } from "../language/protocol.js";
import { whenEnded } from "./rules.js";

/** Fetches with `remove: false` (pages of a long list) that are remembered. */
const MAX_FETCHES = 100;
/** Events that are kept for after an answer; beyond that the state is fetched once more. */
const MAX_KEPT = 10_000;

/**
 * The subscription, as the follower needs it. `active` outlasts a broken connection: if it resumes, nothing is missed, and if it does
 * not, that is a `restart`. `retry`: the gate asks again for a pattern that was refused.
 * @type {Record<FollowState, Partial<Record<Step, FollowState>>>}
 */
export const FOLLOW = {
  idle: { follow: "requested" },
  requested: { acknowledge: "active", refuse: "refused", leave: "idle" },
  active: { refuse: "refused", restart: "requested", leave: "idle" },
  refused: { retry: "requested", leave: "idle" },
};

export class Follow {
  #follower;
  #holds;
  #subscription = new Machine(FOLLOW, "idle");
  /** @type {{ gate: Gate, pattern: string, handlers: Record<string, Function>, spreadMs: number, refetch: boolean } | undefined} */
  #bound;
  /** @type {Fetch[]} that the present state was made of: one that replaced everything, then those that added to it */
  #fetches = [];
  /** @type {Fetch | undefined} the one that is being repeated, until `fetch` has seen it */
  #repeating;
  /** @type {Set<number>} requests under way, numbered as they began */
  #running = new Set();
  #begun = 0;
  /** The latest of those that were answered and replaced everything: the answer to an older one undoes its changes. */
  #latest = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #reported = false;
  /** @type {(() => void)[]} */
  #kept = [];

  /** @param {Follower} follower @param {() => boolean} holds whether it holds a state that may have come with the page */
  constructor(follower, holds) {
    this.#follower = follower;
    this.#holds = holds;
  }

  /** Whether an answer is to come that may be older than the events that arrive now, and that is taken nevertheless. */
  get busy() {
    return this.#running.size > 0 || this.#rolledBack !== undefined;
  }

  /** Whether what is held shows every event: it was fetched while the subscription was active, and nothing was lost since. */
  get current() {
    return this.#subscription.is("active") && !this.busy && this.#fetches.every(({ current }) => current);
  }

  /** The gap of which a fetch has not been answered. */
  get #rolledBack() {
    return this.#fetches.find(({ rolledBack }) => rolledBack)?.rolledBack;
  }

  /**
   * Follow a pattern, instead of the one before.
   * @param {Gate} gate
   * @param {string} pattern a valid one
   * @param {(event: HeadgateEvent) => void} take
   * @param {LiveOptions} options
   */
  start(gate, pattern, take, { resyncSpreadMs: spreadMs = 1000, refetch = true }) {
    checkRule("follow: resyncSpreadMs", [0, MAX_DELAY_MS], spreadMs);
    this.stop();
    const handlers = {
      [pattern]: (/** @type {any} */ _data, /** @type {HeadgateEvent} */ event) => take(event),
      "delivery:gap": (/** @type {{ patterns?: string[], lost?: boolean, recoverable: boolean, reason?: string }} */ gap) => {
        const concerned = !gap.patterns?.length || gap.patterns.includes(pattern);
        if (concerned && (gap.lost ?? !gap.recoverable)) this.lost(gap.reason === ROLLED_BACK ? gap : undefined);
      },
      "connection:up": (/** @type {{ resumed: boolean | null }} */ { resumed }) => this.#connected(resumed),
      "status:change": () => this.#changed(gate, pattern),
      [`subscription:${pattern}`]: () => this.#changed(gate, pattern),
    };
    this.#follower.listenTo(gate, handlers);
    this.#bound = { gate, pattern, handlers, spreadMs, refetch };
    this.#subscription.take("follow");
    void this.#acknowledged();
  }

  /** Follow no more. */
  stop() {
    if (!this.#bound) return;
    const { gate, handlers } = this.#bound;
    this.#follower.stopListening(gate, handlers);
    this.#bound = undefined;
    this.#subscription.take("leave");
    clearTimeout(this.#timer);
    this.#timer = undefined;
    // Requests that are under way are not waited for; if they are answered, it is with an old state.
    this.#running.clear();
    this.#latest = ++this.#begun;
    this.#outdate();
  }

  /** The follower has another id now: forget the fetches made for the one before. */
  forget() {
    this.#fetches = [];
  }

  /**
   * Make one of the follower's fetches.
   * @param {any} options Backbone's
   * @param {(options: any) => any} make
   * @param {boolean} [adds] it leaves in place the models that were fetched before
   * @returns {any} as `make`
   */
  fetch(options, make, adds = false) {
    const fetch = this.#repeating ?? this.#remember(options, adds);
    this.#repeating = undefined;
    fetch.current = this.#subscription.is("active");
    const { rolledBack } = fetch;
    return this.request(rolledBack ? { ...options, rolledBack } : options, make, adds, (ok) => {
      // Not if that was lost while it was under way.
      if (ok && fetch.rolledBack === rolledBack) fetch.rolledBack = undefined;
    });
  }

  /**
   * Make any request of the follower's.
   * @param {any} options Backbone's
   * @param {(options: any) => any} make called with options whose `finish` ends a request that will have no answer
   * @param {boolean} [adds]
   * @param {(ok?: boolean) => void} [ended]
   * @returns {any} as `make`
   */
  request(options, make, adds = true, ended) {
    const number = ++this.#begun;
    this.#running.add(number);
    const how = whenEnded(options, (ok) => {
      this.#running.delete(number);
      if (number < this.#latest) this.#outdate();
      else if (!adds) this.#latest = number;
      ended?.(ok);
      this.#applyKept();
      // When Backbone has told `sync`.
      queueMicrotask(() => this.#repeat());
    });
    try {
      return make(how);
    } catch (error) {
      how.finish();
      throw error;
    }
  }

  /** Apply an event (again) when no request is under way. @param {() => void} apply */
  keep(apply) {
    // One more than may be kept says that there were more.
    if (this.#kept.length <= MAX_KEPT) this.#kept.push(apply);
  }

  /** Events were lost for good. @param {object} [rolledBack] the gap, if the log has lost its end */
  lost(rolledBack) {
    this.#outdate();
    this.#fetchAll();
    if (rolledBack) for (const fetch of this.#fetches) fetch.rolledBack = rolledBack;
    if (!this.#bound?.refetch) return;
    this.#timer ??= startTimer(() => {
      this.#timer = undefined;
      this.#repeat();
    }, Math.random() * this.#bound.spreadMs);
  }

  /** Wait for the acknowledgement. */
  async #acknowledged() {
    const bound = this.#bound;
    /** @type {Step} */
    let step = "acknowledge";
    try {
      await bound?.gate.subscribed(bound.pattern);
    } catch {
      // The gate tells the application (`delivery:error`, or it was closed).
      step = "refuse";
    }
    if (bound !== this.#bound || !this.#subscription.offer(step) || !this.#subscription.is("active")) return;
    if (this.#holds()) this.#fetchAll();
    this.#repeat();
  }

  /** @param {boolean | null} resumed null: the gateway was not asked to */
  #connected(resumed) {
    if (resumed) return;
    const restarted = this.#subscription.offer("restart");
    if (resumed === false || restarted) this.lost();
    if (restarted) void this.#acknowledged();
  }

  /** @param {Gate} gate @param {string} pattern */
  #changed(gate, pattern) {
    if (gate.status === "closed") this.stop();
    else if (["waiting", "refused"].includes(gate._standing(pattern).status)) {
      if (this.#subscription.offer("refuse")) this.#outdate();
    } else if (this.#subscription.offer("retry")) void this.#acknowledged();
  }

  /** The state that was fetched may be older than the events that follow. */
  #outdate() {
    for (const fetch of this.#fetches) fetch.current = false;
  }

  /** A state that was never fetched is fetched as a whole. */
  #fetchAll(current = false) {
    if (!this.#fetches.length) this.#fetches.push({ options: {}, adds: false, current });
  }

  /** @param {any} options @param {boolean} adds @returns {Fetch} */
  #remember(options, adds) {
    // The callbacks are the application's, for its own request.
    const { success: _success, error: _error, ...kept } = options ?? {};
    const fetch = { options: kept, adds, current: false, rolledBack: this.#rolledBack };
    // The models that it adds to came with the page.
    if (adds && this.#holds()) this.#fetchAll(this.#subscription.is("active"));
    this.#fetches = adds ? this.#fetches.filter((each) => !each.adds || keyOf(each) !== keyOf(fetch)) : [];
    this.#fetches.push(fetch);
    if (this.#fetches.length > MAX_FETCHES) {
      this.#fetches.splice(1, 1);
      if (!this.#reported) report(RangeError(`headgate: more than ${MAX_FETCHES} fetches with remove: false; a gap repeats no older ones`));
      this.#reported = true;
    }
    return fetch;
  }

  #applyKept() {
    if (this.#running.size) return;
    const kept = this.#kept.splice(0);
    for (const apply of kept) {
      try {
        apply();
      } catch (error) {
        // A handler of the application's; the others go on.
        report(error);
      }
    }
    if (kept.length > MAX_KEPT) this.lost();
  }

  /** Repeat the first fetch that is stale, if it is time; its end brings the next. */
  #repeat() {
    if (!this.#bound?.refetch || !this.#subscription.is("active") || this.#timer || this.#running.size) return;
    const stale = this.#fetches.find(({ current }) => !current);
    if (!stale) return;
    // The first replaces everything, models that were added to it too.
    if (stale === this.#fetches[0]) this.#outdate();
    this.#repeating = stale;
    try {
      this.#follower.fetch({ ...stale.options });
    } catch (error) {
      report(error);
    }
    // Not seen by our `fetch`: a `fetch` of the application's own.
    if (this.#repeating) stale.current = true;
    this.#repeating = undefined;
  }
}

/** Return the key that tells fetches apart. @param {Fetch} fetch */
function keyOf({ options: { url, data } }) {
  return JSON.stringify([url, data]);
}
