/**
 * The last minute of one person: the events that were shown, missed and repaired, or rolled back. Pure.
 *
 * In: dispatched events, frames and reports of the gate, each with the page's time in ms. Out: bars and spans for the strip, and counts for the
 * verdicts. Each event of a burst counts once by its number, so an event that comes twice cannot make up for a missing one.
 *
 * @typedef {{ seen: Set<number>, twice: number, repaired: number, lastMs: number }} BurstCount `repaired`: those that came while catching up
 * @typedef {{ atMs: number, count: number }} Bar
 * @typedef {{ fromMs: number, toMs: number | null }} Span `toMs` null: it lasts
 * @typedef {{ id: string | null, time: number, offset: number | null, data: any }} Seen
 */

export const WINDOW_MS = 60_000;
/** Events of one bar. */
const BAR_MS = 500;
/** The server publishes no larger burst. */
const MAX_BURST = 500;
/** Counted bursts; the demo runs one at a time. */
const MAX_BURSTS = 4;
/** Ids of events that two people may both have, over which the sent ones are counted. */
const MAX_IDS = 20_000;

/** When the bar of a moment begins. @param {number} nowMs */
export const barAt = (nowMs) => Math.floor(nowMs / BAR_MS) * BAR_MS;

export class Bars {
  /** @type {Bar[]} */
  list = [];
  total = 0;

  /** @param {number} nowMs @param {number} [count] */
  add(nowMs, count = 1) {
    const atMs = barAt(nowMs);
    const bar = this.list.find((each) => each.atMs === atMs);
    this.total += count;
    if (bar) bar.count += count;
    else this.list.push({ atMs, count });
    while (this.list.length > (2 * WINDOW_MS) / BAR_MS) this.list.shift();
  }
}

/** The sent events: those of the log by their publish time, for all people. */
export class Sent extends Bars {
  #ids = new Set();

  /** @param {Seen} event @param {number} nowMs @param {number} wallMs the time of day, which an event's `time` is in */
  take({ id, time }, nowMs, wallMs) {
    if (this.#ids.has(id)) return;
    this.#ids.add(id);
    if (this.#ids.size > MAX_IDS) this.#ids.delete(this.#ids.values().next().value);
    // Clocks of machines differ, and no event may be shown before it is published.
    this.add(nowMs - Math.max(0, wallMs - time));
  }
}

export class Story {
  shown = new Bars();
  repaired = new Bars();
  rolledBack = new Bars();
  /** @type {Span[]} */
  gaps = [];
  gapCount = 0;
  /** How long the latest repair took; null: it has not ended. @type {number | null} */
  repairMs = null;
  /** @type {Map<string, BurstCount>} newest last */
  #bursts = new Map();
  /** The offset at which this person has caught up. @type {number | null} */
  #target = null;
  #backMs = 0;

  /** Count a dispatched event. @param {Seen} event @param {number} nowMs */
  take({ offset, data }, nowMs) {
    this.shown.add(nowMs);
    const repaired = this.#target !== null && offset !== null && offset <= this.#target;
    if (repaired) this.repaired.add(nowMs);
    const { id, number } = data?.burst ?? {};
    // Other programs may publish anything. A burst of the server has no other numbers and no longer id.
    if (typeof id !== "string" || id.length > 40 || !Number.isInteger(number) || number < 1 || number > MAX_BURST) return;
    const burst = this.burst(id);
    if (burst.seen.has(number)) burst.twice++;
    else if (repaired) burst.repaired++;
    burst.seen.add(number);
    burst.lastMs = nowMs;
  }

  /** @param {string} id @returns {BurstCount} */
  burst(id) {
    const known = this.#bursts.get(id);
    if (known) return known;
    const made = { seen: /** @type {Set<number>} */ (new Set()), twice: 0, repaired: 0, lastMs: 0 };
    this.#bursts.set(id, made);
    if (this.#bursts.size > MAX_BURSTS) this.#bursts.delete(/** @type {string} */ (this.#bursts.keys().next().value));
    return made;
  }

  /** The connection is gone. @param {number} nowMs */
  down(nowMs) {
    this.#target = null;
    if (this.gaps.at(-1)?.toMs === null) return;
    this.#begin(nowMs);
  }

  /** The connection is back, and the events of the log up to `offset` were missed. @param {number} nowMs @param {number} offset */
  up(nowMs, offset) {
    if (this.gaps.at(-1)?.toMs !== null) return;
    this.#end(nowMs);
    this.#target = offset;
    this.#backMs = nowMs;
    this.repairMs = null;
  }

  /** The gate reports a gap. @param {{ reason: string, count: number | null }} gap @param {number} nowMs */
  gap({ reason, count }, nowMs) {
    if (reason === "rolled_back") return this.rolledBack.add(nowMs, count ?? 1);
    this.#begin(nowMs);
    this.#end(nowMs + BAR_MS);
  }

  /** @param {number} nowMs @param {{ offset: number | null, waiting: number, connection: string }} state of the gate */
  tick(nowMs, { offset, waiting, connection }) {
    if (this.#target === null || connection !== "up" || waiting || (offset ?? 0) < this.#target) return;
    this.#target = null;
    this.repairMs = nowMs - this.#backMs;
  }

  /** Whether nothing is missed and nothing is being repaired. */
  get isWhole() {
    return this.#target === null && this.gaps.at(-1)?.toMs !== null;
  }

  /** @param {number} nowMs */
  #begin(nowMs) {
    this.gapCount++;
    this.gaps.push({ fromMs: nowMs, toMs: null });
    while (this.gaps.length > 1 && (this.gaps[0].toMs ?? nowMs) < nowMs - WINDOW_MS) this.gaps.shift();
  }

  /** @param {number} nowMs */
  #end(nowMs) {
    const last = this.gaps.at(-1);
    if (last && last.toMs === null) last.toMs = nowMs;
  }
}
