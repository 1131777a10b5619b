/**
 * The pulse: the last minute of this tab, second by second. Pure; the caller brings the monotonic time.
 *
 * In: dispatched and drawn events, the conditions of the tab (`stalled`, `offline`, …), notes. Out: one entry per second, for the
 * chart and for the table. HISTORY_S, the number of conditions, and MAX_NOTES per second bound it.
 *
 * @typedef {"stalled" | "offline" | "no Redis" | "catching up" | "backpressure"} Condition
 * @typedef {object} Second
 * @property {number} ago seconds before now
 * @property {number} received events dispatched
 * @property {number} takenBack so many of them the log has lost since, about
 * @property {number | null} slowestMs longest time from publishing to drawing, of the events drawn
 * @property {Condition[]} conditions
 * @property {string[]} notes
 * @property {string[]} marks the notes that the chart shows, each in a word or two
 */

export const HISTORY_S = 60;
const MAX_NOTES = 4;
/** Most stretches that are kept: more than fit into a minute when each lasts a second. */
const MAX_STRETCHES = 64;

export class Pulse {
  /** @type {Map<number, { received: number, first: number, last: number, takenBack: number, slowestMs: number | null, notes: string[], marks: string[] }>} */
  #seconds = new Map();
  /** @type {{ condition: Condition, fromMs: number, toMs: number | null }[]} */
  #stretches = [];

  /** Count a dispatched event. @param {number} nowMs @param {number} [offset] */
  received(nowMs, offset) {
    const second = this.#at(nowMs);
    second.received++;
    if (offset === undefined) return;
    second.first = Math.min(second.first, offset);
    second.last = Math.max(second.last, offset);
  }

  /** Mark the events from this offset on as lost by the log: of a second on the edge, in proportion. @param {number} from */
  takeBack(from) {
    for (const second of this.#seconds.values()) {
      const { received, first, last } = second;
      if (last < from) continue;
      second.takenBack = first >= from ? received : Math.round((received * (last - from + 1)) / (last - first + 1));
      second.last = from - 1; // these offsets come again, for other events
    }
  }

  /** Note that the dispatched events are drawn. @param {number} nowMs @param {number} lagMs delay of the oldest */
  shown(nowMs, lagMs) {
    const second = this.#at(nowMs);
    second.slowestMs = Math.max(second.slowestMs ?? 0, lagMs);
  }

  /** @param {number} nowMs @param {string} text @param {string} [mark] the same in a word or two, for the chart */
  note(nowMs, text, mark) {
    const { notes, marks } = this.#at(nowMs);
    if (notes.length < MAX_NOTES) notes.push(text);
    if (mark && marks.length < MAX_NOTES) marks.push(mark);
  }

  /** Begin a condition, unless it lasts already. @param {Condition} condition @param {number} nowMs */
  begin(condition, nowMs) {
    if (!this.lasts(condition)) this.#stretch(condition, nowMs, null);
  }

  /** End a condition. @param {Condition} condition @param {number} nowMs */
  end(condition, nowMs) {
    for (const each of this.#stretches) if (each.condition === condition) each.toMs ??= nowMs;
  }

  /** Add a condition that is known only when it is over. @param {Condition} condition @param {number} fromMs @param {number} toMs */
  lasted(condition, fromMs, toMs) {
    this.#stretch(condition, fromMs, toMs);
  }

  /** @param {Condition} condition */
  lasts(condition) {
    return this.#stretches.some((each) => each.condition === condition && each.toMs === null);
  }

  /** Return the last HISTORY_S seconds, oldest first, the present one last. @param {number} nowMs @returns {Second[]} */
  seconds(nowMs) {
    const present = Math.floor(nowMs / 1000);
    return Array.from({ length: HISTORY_S }, (_, index) => {
      const ago = HISTORY_S - 1 - index;
      const start = (present - ago) * 1000;
      const { received = 0, takenBack = 0, slowestMs = null, notes = [], marks = [] } = this.#seconds.get(present - ago) ?? {};
      return { ago, received, takenBack, slowestMs, notes, marks, conditions: this.#during(start, start + 1000, nowMs) };
    });
  }

  /** @param {number} fromMs @param {number} toMs @param {number} nowMs @returns {Condition[]} */
  #during(fromMs, toMs, nowMs) {
    const found = this.#stretches.filter((each) => each.fromMs < toMs && (each.toMs ?? nowMs) > fromMs);
    return [...new Set(found.map(({ condition }) => condition))];
  }

  /** @param {Condition} condition @param {number} fromMs @param {number | null} toMs */
  #stretch(condition, fromMs, toMs) {
    this.#stretches.push({ condition, fromMs, toMs });
    if (this.#stretches.length > MAX_STRETCHES) this.#stretches.shift();
  }

  /** @param {number} nowMs */
  #at(nowMs) {
    const second = Math.floor(nowMs / 1000);
    let held = this.#seconds.get(second);
    if (!held) {
      held = { received: 0, first: Infinity, last: -Infinity, takenBack: 0, slowestMs: null, notes: [], marks: [] };
      this.#seconds.set(second, held);
      for (const each of this.#seconds.keys()) if (each <= second - HISTORY_S) this.#seconds.delete(each);
    }
    return held;
  }
}

/**
 * Return the stretches of whole seconds in which a condition lasts, as indexes into `seconds`, `to` exclusive.
 * @param {Second[]} seconds
 * @returns {{ condition: Condition, from: number, to: number }[]}
 */
export function runs(seconds) {
  /** @type {{ condition: Condition, from: number, to: number }[]} */
  const found = [];
  seconds.forEach(({ conditions }, index) => {
    for (const condition of conditions) {
      const last = found.find((each) => each.condition === condition && each.to === index);
      if (last) last.to++;
      else found.push({ condition, from: index, to: index + 1 });
    }
  });
  return found;
}

/** @param {Second[]} seconds @returns {string} the chart in a sentence */
export function summary(seconds) {
  const received = seconds.reduce((sum, each) => sum + each.received, 0);
  const most = Math.max(...seconds.map((each) => each.received));
  const slowest = Math.max(0, ...seconds.map(({ slowestMs }) => slowestMs ?? 0));
  /** @type {string[]} */
  const parts = [`${received} events in the last minute, at most ${most} in a second`];
  if (received) parts.push(`the slowest shown ${(slowest / 1000).toFixed(1)} seconds after it was published`);
  const takenBack = seconds.reduce((sum, each) => sum + each.takenBack, 0);
  if (takenBack) parts.push(`about ${takenBack} of them taken back`);
  for (const condition of new Set(seconds.flatMap(({ conditions }) => conditions))) {
    parts.push(`${condition} during ${seconds.filter(({ conditions }) => conditions.includes(condition)).length} of the seconds`);
  }
  return parts.join("; ");
}
