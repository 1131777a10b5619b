/**
 * Repair: fetches from the log the events that a full queue left out (policy `drop`), one gap at a time, page by page. No I/O of
 * its own.
 *
 * In: gaps. Out: requests for pages, at the pace that `waitMs` allows, and one `ended` per gap, with the number of events that
 * were fetched. A broken connection only interrupts a repair. A gap that was refused, or has failed too often, ends with the
 * number so far: the gateway reports how many events it left out, so the owner knows how many are still missing.
 *
 * @import { Gap } from "../language/protocol.js"
 * @typedef {{ gap: Gap, patterns: string[], nth: number, from: number | null, had: Map<number, unknown>, failures: number, kept: string[], isInDoubt?: boolean }} Job
 *   `from`: where pattern number `nth` goes on; `had`: events of the gap that handlers have had, the id by the offset; `kept`: patterns whose events were not left out;
 *   `isInDoubt`: the client has resumed in another epoch since, which may lack some of them
 */

import { startTimer } from "../base/timer.js";

/** Positions of the log in one gap: beyond it the state is fetched sooner than its history. */
const MAX_POSITIONS = 10_000;
const MAX_JOBS = 16;
const MAX_FAILURES = 5;
const RETRY_MS = 2000;

/**
 * @param {(job: Job) => Promise<number | null>} fetch dispatches a page, counts it, and returns where the next begins
 * @param {() => number} waitMs takes a request out of the budget and returns 0; else how long to wait for one
 * @param {(job: Job) => void} ended
 */
export function createRepair(fetch, waitMs, ended) {
  /** @type {Job[]} */
  let jobs = [];
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;

  /** @param {number} delayMs */
  function after(delayMs) {
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
    // Otherwise it was cleared in the meantime.
    if (timer !== mine) return;
    if (!job.from) ended(/** @type {Job} */ (jobs.shift()));
    after(delayMs);
  }

  return {
    /** Take a gap on; undefined: it is too large, or there are too many. @param {Gap} gap @param {string[]} patterns @param {string[]} kept */
    add(gap, patterns, kept) {
      const { from, to } = gap;
      if (!from || !to || to - from >= MAX_POSITIONS || jobs.length >= MAX_JOBS) return;
      /** @type {Job} */
      const job = { gap, patterns, nth: 0, from, had: new Map(), failures: 0, kept };
      jobs.push(job);
      if (!timer) after(0);
      return job;
    },

    /** Give up the gaps that reach above an offset. @param {number} to */
    giveUp(to) {
      const [first] = jobs;
      const kept = jobs.filter(({ gap }) => /** @type {number} */ (gap.to) <= to);
      const rest = jobs.filter((job) => !kept.includes(job));
      jobs = kept;
      // The one under way: its answer counts for nothing.
      if (jobs[0] !== first) {
        clearTimeout(timer);
        after(0);
      }
      rest.forEach(ended);
    },

    /** Forget every gap. */
    clear() {
      clearTimeout(timer);
      jobs = [];
      timer = undefined;
    },
  };
}
