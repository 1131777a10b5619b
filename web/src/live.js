/**
 * Live: what a LiveModel and a LiveCollection have in common: the convention of topics, and when to fetch again.
 *
 * Convention: `<prefix>.<id>.<verb>`. `created` and `updated` bring attributes of a model that may be new; `deleted`,
 * `removed` and `destroyed` end it; any other verb (`shipped`) brings attributes for a model that is known. Data that is
 * not an object changes nothing.
 *
 * @import { Gate, HeadgateEvent } from "./gate.js"
 * @typedef {{ op: "upsert" | "merge" | "remove" | "ignore", id?: any, attributes?: Record<string, any> }} Change
 *   upsert: add or update; merge: update what is known
 * @typedef {(event: HeadgateEvent) => Change | null | undefined} Mapping
 *
 * @typedef {object} LiveOptions
 * @property {Gate} [gate]
 * @property {string} [topic] prefix of the topics, such as `orders`
 * @property {Mapping} [mapping] instead of the convention
 * @property {string} [versionAttribute] default `version`
 * @property {number} [resyncSpreadMs] default 1000: a fetch after a gap waits a random time up to this, so that not every
 *   page asks the server at once, and so that several gaps cost one fetch
 */

const REMOVED = new Set(["deleted", "removed", "destroyed"]);
const COMPLETE = new Set(["created", "updated"]);

/**
 * Return the convention's mapping for a prefix.
 * @param {string} prefix
 * @returns {Mapping}
 */
export function byConvention(prefix) {
  const depth = prefix.split(".").length;
  return ({ topic, data }) => {
    const words = topic.split(".");
    const verb = words[words.length - 1];
    if (words.length !== depth + 2) return null;
    const attributes = data !== null && typeof data === "object" && !Array.isArray(data) ? data : undefined;
    const id = words[depth];
    if (REMOVED.has(verb)) return { op: "remove", id, attributes };
    if (!attributes) return null;
    return { op: COMPLETE.has(verb) ? "upsert" : "merge", id, attributes };
  };
}

/**
 * Return whether attributes that bring a version are not newer than those that are there.
 * @param {Record<string, any> | undefined} attributes
 * @param {Record<string, any>} present
 * @param {string} key
 * @param {boolean} [equalIsStale]
 */
export function isStale(attributes, present, key, equalIsStale = true) {
  const [comes, is] = [attributes?.[key], present[key]];
  if (comes === undefined || comes === null || is === undefined || is === null) return false;
  return equalIsStale ? comes <= is : comes < is;
}

/** Fetches again after events were lost for good: spread out, one at a time, once more if more was lost meanwhile. */
export class Resync {
  #busy = false;
  #again = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /** @param {() => Promise<unknown>} fetch @param {number} [spreadMs] */
  constructor(fetch, spreadMs = 1000) {
    this.fetch = fetch;
    this.spreadMs = spreadMs;
  }

  /** Something was lost. */
  ask() {
    if (this.#busy) this.#again = true;
    else this.#timer ??= setTimeout(() => void this.#run(), Math.random() * this.spreadMs);
  }

  cancel() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#again = false;
  }

  async #run() {
    this.#timer = undefined;
    this.#busy = true;
    try {
      await this.fetch();
    } catch {
      // Told by Backbone's own `error` event; the next gap, or the application, tries again.
    }
    this.#busy = false;
    if (this.#again) {
      this.#again = false;
      this.ask();
    }
  }
}

/**
 * Call `lost` whenever the gate says that events are gone for good.
 * @param {{ listenTo: Function }} follower
 * @param {Gate} gate
 * @param {() => void} lost
 */
export function whenLost(follower, gate, lost) {
  follower.listenTo(gate, "delivery:gap", (/** @type {{ lost?: boolean, recoverable: boolean }} */ gap) => (gap.lost ?? !gap.recoverable) && lost());
  follower.listenTo(gate, "connection:up", (/** @type {{ resumed: boolean | null }} */ up) => up.resumed === false && lost());
}

/**
 * Return a promise for the end of a Backbone request.
 * @param {(callbacks: { success: () => void, error: (model: any, response: any) => void }) => unknown} request
 * @returns {Promise<void>}
 */
export function whenDone(request) {
  return new Promise((resolve, reject) => {
    request({ success: () => resolve(), error: (_model, response) => reject(response) });
  });
}
