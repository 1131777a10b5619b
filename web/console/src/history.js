/**
 * The history: the newest frames, as columns for a chart. Pure.
 *
 * In: a frame each second. Out: times in seconds since 1970, and for each name a column of numbers, null where nothing was measured. Bounded
 * by MOST frames. A pause of more than GAP_S leaves a hole, so that a line shows only measured values.
 *
 * @typedef {Record<string, number | null>} Point
 */

export const MOST = 300;
const GAP_S = 5;

export class History {
  /** @type {number[]} */
  #times = [];
  /** @type {Point[]} */
  #points = [];

  get length() {
    return this.#points.length;
  }

  /** @param {number} atS @param {Point} point */
  add(atS, point) {
    const last = this.#times.at(-1);
    if (last !== undefined && atS <= last) return;
    if (last !== undefined && atS - last > GAP_S) this.#put(last + 1, {});
    this.#put(atS, point);
  }

  /** @param {string[]} names @returns {[number[], ...(number | null)[][]]} */
  columns(names) {
    return [this.#times, ...names.map((name) => this.#points.map((point) => point[name] ?? null))];
  }

  /** @param {string} name @returns {number | null} */
  newest(name) {
    return this.#points.at(-1)?.[name] ?? null;
  }

  /** @param {string} name @returns {number | null} */
  greatest(name) {
    const known = this.#points.map((point) => point[name] ?? null).filter((value) => value !== null);
    return known.length ? Math.max(...known) : null;
  }

  /** @param {number} atS @param {Point} point */
  #put(atS, point) {
    this.#times.push(atS);
    this.#points.push(point);
    if (this.#times.length > MOST) {
      this.#times.shift();
      this.#points.shift();
    }
  }
}

/** Return the values of a frame that the charts show. @param {any} frame @returns {Point} */
export function pointOf(frame) {
  const { measured, rates, latency, now } = frame;
  // The first frame of a process has no rates.
  if (!measured) return {};
  return {
    published: rates.published,
    routed: rates.routed + rates.from_log,
    sent: rates.sent,
    left: rates.discarded + rates.conflated,
    p50: latency?.p50 ?? null,
    p90: latency?.p90 ?? null,
    p99: latency?.p99 ?? null,
    max: latency?.max ?? null,
    clients: now.clients,
  };
}
