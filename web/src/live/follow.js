/**
 * Follow: the fetches of one Backbone model or collection, for the load that keeps it up to date (load.js).
 *
 * In: the follower's own fetches and requests, and the load's request to fetch again. Out: calls of the follower's `fetch`; events of the pattern for `take`.
 *
 * An application fetches in Backbone's ways, perhaps by several requests. When they are stale, the load repeats them here, with the same options, one after
 * another. Events that arrive while a request is under way are applied at once, and again after its answer, which may be older.
 *
 * When the log has lost its end (`rolled_back`), the present version may come from a lost event. So the next answer to each fetch that begins after that is
 * accepted whatever its version is.
 *
 * @import { Gate, HeadgateEvent } from "../gate.js"
 * @import { LiveOptions } from "./rules.js"
 * @typedef {{ fetch: (options: any) => unknown }} Follower
 * @typedef {{ options: any, adds: boolean, mark?: object, rolledBack?: object }} Fetch `adds`: it keeps the models of other fetches; `mark`: of the load when it began,
 *   if that was active; `rolledBack`: the gap since which it has not been answered, if the log has lost its end
 */
import { report } from "../base/report.js";
import { MAX_DELAY_MS } from "../base/timer.js";
import { Gate as BaseGate, load as follow } from "../index.js";
import { whenEnded } from "./rules.js";

/** The LiveOptions checked here. @type {import("../language/options.js").Table} */
const OPTIONS = { resyncSpreadMs: [[0, MAX_DELAY_MS]], refetch: ["boolean", true], mapping: ["function null"], versionAttribute: ["string null"] };
/** The most remembered fetches with `remove: false` (pages of a long list). */
const MAX_FETCHES = 100;

export class Follow {
  #follower;
  #holds;
  /** @type {ReturnType<typeof import("../load.js").load> | undefined} */
  #load;
  /** @type {Fetch[]} the fetches of the present state: one that replaced everything, then those that added to it */
  #fetches = [];
  /** The fetch that is about to be repeated, until `fetch` is called for it. @type {{ fetch: Fetch, ended: (ok?: boolean) => void } | undefined} */
  #repeating;
  /** Requests under way, numbered as they began, with the function that ends their hold on the load. @type {Map<number, (() => void) | undefined>} */
  #running = new Map();
  #begun = 0;
  /** The latest answered request that replaced everything. The answer to an older one undoes its changes. */
  #latest = 0;
  #reported = false;

  /** @param {Follower} follower @param {() => boolean} holds whether it has a state, which may have come with the page */
  constructor(follower, holds) {
    this.#follower = follower;
    this.#holds = holds;
  }

  /** The gap since which a fetch has not been answered. */
  get #rolledBack() {
    return this.#fetches.find(({ rolledBack }) => rolledBack)?.rolledBack;
  }

  /**
   * Follow a pattern, instead of the previous one.
   * @param {Gate} gate
   * @param {string} pattern a valid one
   * @param {(event: HeadgateEvent) => void} take
   * @param {LiveOptions} options and Backbone's
   * @throws {TypeError} an option that breaks its rule
   */
  start(gate, pattern, take, options) {
    const { refetch, resyncSpreadMs } = checkLive(gate, options);
    this.stop();
    const load = follow(gate, pattern, refetch ? () => this.#repeat() : undefined, {
      apply: (_data, event) => take(event),
      lost: (rolledBack) => {
        this.#fetchAll();
        if (rolledBack) for (const fetch of this.#fetches) fetch.rolledBack = rolledBack;
      },
      eager: true,
      resyncSpreadMs,
    });
    this.#load = load;
    for (const number of this.#running.keys()) this.#running.set(number, load._hold());
  }

  /** Stop following. */
  stop() {
    if (!this.#load) return;
    this.#load.close();
    this.#load = undefined;
    // Running requests are not awaited. Their answers count as old.
    this.#running.clear();
    this.#latest = ++this.#begun;
    for (const fetch of this.#fetches) fetch.mark = undefined;
  }

  /** The follower has another id now. Forget the fetches for the previous one. */
  forget() {
    this.#fetches = [];
  }

  /**
   * Make one of the follower's fetches.
   * @param {any} options Backbone's
   * @param {(options: any) => any} make
   * @param {boolean} [adds] whether it keeps the models that were fetched before
   * @returns {any} as `make`
   */
  fetch(options, make, adds = false) {
    const { fetch, ended } = this.#repeating ?? { fetch: this.#remember(options, adds), ended: undefined };
    this.#repeating = undefined;
    fetch.mark = this.#load?._mark;
    const { rolledBack } = fetch;
    return this.request(rolledBack ? { ...options, rolledBack } : options, make, adds, (ok) => {
      // Not if the log has lost its end again while the fetch was under way.
      if (ok && fetch.rolledBack === rolledBack) fetch.rolledBack = undefined;
      ended?.(ok);
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
    this.#running.set(number, this.#load?._hold());
    const how = whenEnded(options, (ok) => {
      const release = this.#running.get(number);
      this.#running.delete(number);
      if (number < this.#latest) {
        for (const fetch of this.#fetches) fetch.mark = undefined;
        this.#load?._outdate();
      } else if (!adds) this.#latest = number;
      ended?.(ok);
      // The load fetches again after Backbone has triggered `sync`.
      release?.();
    });
    try {
      return make(how);
    } catch (error) {
      how.finish();
      throw error;
    }
  }

  /** Repeat the stale fetches of the state. */
  async #repeat() {
    const mark = this.#load?._mark;
    if (!mark) return;
    if (this.#holds()) this.#fetchAll();
    while (this.#load?._mark === mark) {
      const stale = this.#fetches.find((each) => each.mark !== mark);
      if (!stale) return;
      // The first fetch replaces everything, also models that later ones have added.
      if (stale === this.#fetches[0]) for (const each of this.#fetches) each.mark = undefined;
      await this.#again(stale, mark);
    }
  }

  /** @param {Fetch} fetch @param {object} mark @returns {Promise<void>} rejected with nothing when Backbone has reported the error */
  #again(fetch, mark) {
    return new Promise((resolve, reject) => {
      let isThrown = false;
      const ended = async (/** @type {boolean | undefined} */ ok) => {
        // If the follower's `fetch` throws, `isThrown` is set first.
        await undefined;
        if (ok) return resolve();
        if (!isThrown) fetch.mark = undefined;
        reject();
      };
      this.#repeating = { fetch, ended };
      try {
        this.#follower.fetch({ ...fetch.options });
        if (!this.#repeating) return;
      } catch (error) {
        // It would throw the next time too.
        isThrown = true;
        report(error);
      }
      // The application has overridden `fetch`, and does not call ours.
      this.#repeating = undefined;
      fetch.mark = mark;
      resolve();
    });
  }

  /** Fetch a state as a whole if it was never fetched. @param {object} [mark] */
  #fetchAll(mark) {
    if (!this.#fetches.length) this.#fetches.push({ options: {}, adds: false, mark });
  }

  /** @param {any} options @param {boolean} adds @returns {Fetch} */
  #remember(options, adds) {
    // The callbacks belong to the application's own request.
    const { success: _success, error: _error, ...kept } = options ?? {};
    const fetch = { options: kept, adds, rolledBack: this.#rolledBack };
    // It adds to models that came with the page.
    if (adds && this.#holds()) this.#fetchAll(this.#load?._mark);
    this.#fetches = adds ? this.#fetches.filter((each) => !each.adds || keyOf(each) !== keyOf(fetch)) : [];
    this.#fetches.push(fetch);
    if (this.#fetches.length > MAX_FETCHES) {
      this.#fetches.splice(1, 1);
      if (!this.#reported) report(RangeError(`headgate: more than ${MAX_FETCHES} fetches with remove: false; a gap repeats no older ones`));
      this.#reported = true;
    }
    return fetch;
  }
}

/** Return options of LiveOptions with their defaults. @param {Gate} gate @param {LiveOptions} options and Backbone's @throws {TypeError} */
export function checkLive(gate, options) {
  BaseGate._check("follow: options", "object", options);
  const { resyncSpreadMs, refetch, mapping, versionAttribute } = options;
  return BaseGate._optionsOf(gate, "follow", OPTIONS, { resyncSpreadMs, refetch, mapping, versionAttribute });
}

/** Return a key that identifies a fetch. @param {Fetch} fetch */
function keyOf({ options: { url, data } }) {
  return JSON.stringify([url, data]);
}
