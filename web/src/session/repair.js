/**
 * Repair: fetches the events that a full queue has dropped (policy `drop`) from the log, one gap at a time, page by page. No I/O.
 *
 * In: gaps. Out: requests for pages, at the pace that `waitMs` allows, and one `ended` for each gap, with the fetched events. A broken connection only
 * interrupts a repair. A repair that is refused or fails too often ends with the events so far. The gateway has reported how many it dropped, so the owner
 * knows how many are still missing.
 *
 * @import { Gap } from "../language/protocol.js"
 * @typedef {{ gap: Gap, patterns: string[], nth: number, from: number | null, had: Map<number, unknown>, failures: number, kept: string[], isInDoubt?: boolean }} Job
 *   `from`: where pattern number `nth` continues; `had`: events of the gap that handlers have had, ids by offset; `kept`: patterns whose events were not dropped;
 *   `isInDoubt`: the client has resumed in another epoch since, which may lack some of them
 */

import { startTimer } from "../base/timer.js";

/** The most offsets of one gap. Beyond it, fetching the state is faster than fetching its history. */
const MAX_POSITIONS = 10_000;
const MAX_JOBS = 16;
const MAX_FAILURES = 5;
const RETRY_MS = 2000;

/**
 * @param {(job: Job) => Promise<number | null>} fetch dispatches a page, counts it, and returns where the next begins
 * @param {() => number} waitMs takes a request out of the budget and returns 0, or returns how long to wait for one
 * @param {(job: Job) => void} ended
 */
export function createRepair(fetch, waitMs, ended) {
  /** @type {Job[]} */
  let jobs = [];
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;

  /** @param {number} delayMs */
  function after(delayMs) {
    clearTimeout(timer);
    timer = jobs.length ? startTimer(step, delayMs) : undefined;
  }

  async function step() {
    const mine = timer;
    const [job] = jobs;
    let delayMs = waitMs();
    if (!delayMs) {
      try {
        job.from = await fetch(job);
        if (!job.from && ++job.nth < job.patterns.length) job.from = job.gap.from;
      } catch (/** @type {any} */ { code, retry }) {
        delayMs = RETRY_MS;
        if (code !== "disconnected" && (!retry || ++job.failures > MAX_FAILURES)) job.from = null;
      }
    }
    // If the timer is another one, the repair was cleared in the meantime.
    if (timer !== mine) return;
    if (!job.from) ended(/** @type {Job} */ (jobs.shift()));
    after(delayMs);
  }

  return {
    /** Begin the repair of a gap. Return undefined if it is too large, or there are too many. @param {Gap} gap @param {string[]} patterns @param {string[]} kept */
    add(gap, patterns, kept) {
      const { from, to } = gap;
      if (!from || !to || to - from >= MAX_POSITIONS || jobs.length >= MAX_JOBS) return;
      /** @type {Job} */
      const job = { gap, patterns, nth: 0, from, had: new Map(), failures: 0, kept };
      jobs.push(job);
      if (!timer) after(0);
      return job;
    },

    /** Give up gaps that extend above an offset. @param {number} to */
    giveUp(to) {
      const [first] = jobs;
      const over = jobs.filter(({ gap }) => /** @type {number} */ (gap.to) > to);
      jobs = jobs.filter((job) => !over.includes(job));
      // The repair under way was given up. Its answer does not count.
      if (jobs[0] !== first) after(0);
      over.forEach(ended);
    },

    /** Forget every gap. */
    clear() {
      jobs = [];
      after(0);
    },
  };
}
