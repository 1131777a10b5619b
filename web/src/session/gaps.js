/**
 * Gaps: events that this client did not get, as the gateway reports them; their repair from the log; the count of those still missing.
 *
 * In: gap notices in their turn, pages of the log. Out: `delivery:gap` (repairing or lost), `delivery:resumed`, the option
 * `resync`, replayed events. A gap is reported when its notice is dispatched, before anything later.
 *
 * An overflow gap does not move the position. If the connection breaks before anything later comes, the next one brings the events of
 * the gap as well: each of them reaches the handlers once, by the repair or in its turn, whichever is first. If it goes on in another epoch,
 * the log may have lost those that a repair has brought. The gateway knows the position alone, so the client reports them.
 *
 * @import { EventMeta, Gap, Position } from "../language/protocol.js"
 * @import { Job } from "./repair.js"
 *
 * @typedef {{ repairing: boolean, lost: boolean }} Fate
 * @typedef {{ from: number, to: number, epoch?: string }} Range offsets, inclusive, and the epoch in which they are meant: now's unless given
 *
 * @typedef {object} GapsOwner
 * @property {ReturnType<typeof import("./delivery.js").createDelivery>["deliver"]} deliver
 * @property {{ gaps: number, missed: number }} counts how many there were, and how many of their events are missing, as far as they are numbered
 * @property {ReturnType<typeof import("./cursor.js").createCursor>} cursor
 * @property {ReturnType<typeof import("./replays.js").createReplays>} replays
 * @property {ReturnType<typeof import("../subscriptions/subscriptions.js").createSubscriptions>} subscriptions
 * @property {{ request: (name: string, body: object) => Promise<any> }} connection
 * @property {{ waitMs: () => number, turn: (patienceMs: number) => Promise<void> | undefined }} requests `waitMs` takes a request out of the budget and returns 0; else
 *   how long to wait for one; `turn` waits for it
 * @property {(name: string, body: any) => void} tell a lifecycle event
 * @property {((gap: Gap & Fate) => void)} [resync] called when events will not come
 */
import * as wire from "../language/protocol.js";
import { createRepair } from "./repair.js";
import { meets } from "../language/pattern-index.js";

/** @param {GapsOwner} owner */
export function createGaps({ deliver, counts, cursor, replays, subscriptions, connection, requests, tell, resync }) {
  const repair = createRepair(fetch, requests.waitMs, repaired);
  /** Repairs, over or not, of gaps that no later event has passed. @type {Job[]} */
  let open = [];
  /** Whether handlers are called with events of a page. */
  let isReading = false;

  /** Whether an event was left out by a full queue, and no stronger policy kept it. @param {Job} job @param {string} topic */
  const dropped = ({ patterns, kept }, topic) => !kept.some((each) => meets(each, topic)) && patterns.some((each) => meets(each, topic));

  function clear() {
    repair.clear();
    open = [];
  }

  /** @param {Gap} gap */
  function take(gap) {
    const { from, to, reason, recoverable } = gap;
    counts.gaps++;
    if (reason === wire.ROLLED_BACK) {
      // These were seen, and are no longer in the log.
      const end = /** @type {number} */ (from) - 1;
      cursor.rollBack(end, /** @type {string} */ (gap.epoch));
      repair.giveUp(end);
      for (const { had } of open) for (const offset of had.keys()) if (offset > end) had.delete(offset);
    } else counts.missed += gap.count ?? (from && to ? to - from + 1 : 0);
    // In the ranges of other reasons there may be later events of another policy.
    if (reason === wire.LOG_LOST) {
      cursor.restart();
      clear();
    } else if (reason === wire.TRIMMED && to) cursor.skip(to);
    const wanted = recoverable ? subscriptions.repaired(gap.patterns) : [];
    const job = wanted.length > 0 && repair.add(gap, wanted, subscriptions.keeping(gap.patterns));
    if (job) open.push(job);
    const repairing = Boolean(job);
    tellGap(gap, repairing, !repairing && (!recoverable || wanted.length > 0));
  }

  /** @param {Gap} gap @param {boolean} repairing @param {boolean} lost */
  function tellGap(gap, repairing, lost) {
    const fate = { ...gap, repairing, lost };
    tell("delivery:gap", fate);
    if (lost) resync?.(fate);
  }

  /**
   * @param {string} pattern @param {number | null} from @param {number | null} to @param {string | undefined} epoch in which these offsets are meant
   * @param {(topic: string, data: any, meta: EventMeta) => void} each
   * @returns {Promise<number | null>} where the next page begins
   */
  async function page(pattern, from, to, epoch, each) {
    const losses = cursor.losses();
    const { events, next } = await connection.request(wire.REPLAY, { pattern, from, to, epoch });
    // It may hold what the log has lost since: this page again.
    if (losses !== cursor.losses()) return from;
    isReading = true;
    for (const event of events) each(.../** @type {[string, any, EventMeta]} */ (event));
    isReading = false;
    return next;
  }

  /** @param {Job} job */
  function fetch(job) {
    const { gap, patterns, nth, had } = job;
    return page(patterns[nth], job.from, gap.to, cursor.position()?.epoch, (topic, data, meta) => {
      // One that an earlier pattern matches was fetched with it.
      const { offset, id } = /** @type {{ offset: number, id: unknown }} */ (meta);
      if (!dropped(job, topic) || had.has(offset) || patterns.slice(0, nth).some((each) => meets(each, topic))) return;
      had.set(offset, id);
      deliver(topic, data, meta, (each) => patterns.includes(each) && replays.isFirst(each, offset));
    });
  }

  /** @param {Job} job */
  function repaired({ gap, patterns, had }) {
    const { from, to } = gap;
    const count = had.size;
    counts.missed -= count;
    if (count) tell("delivery:resumed", { ...cursor.position(), repaired: { patterns, from, to, count } });
    // The gateway counts exactly. The others have no offset, or were trimmed, conflated or refused: they will not come.
    const rest = /** @type {number} */ (gap.count) - count;
    if (rest > 0 && patterns.length === gap.patterns.length) tellGap({ ...gap, count: rest, recoverable: false }, false, true);
  }

  /**
   * The client goes from one position to another, perhaps with the event there. What a repair had brought in between has come again, where the
   * client has resumed below it: otherwise the log has lost it, and the gateway, which knows only the position, cannot tell.
   * @param {number} before @param {number} to @param {unknown} [id] of the event
   */
  function pass(before, to, id) {
    for (const { gap, patterns, had, isInDoubt } of open) {
      for (const [at, known] of had) {
        if (before < at && (at === to && id ? known !== id : at <= to && isInDoubt) && had.delete(at)) {
          tellGap({ ...gap, epoch: cursor.position()?.epoch, patterns, from: at, to: at, count: 1, reason: wire.ROLLED_BACK, recoverable: false }, false, true);
        }
      }
    }
  }

  return {
    take,

    /** A welcome continues in another epoch; the log may have lost events above its beginning. */
    doubt() {
      for (const job of open) job.isInDoubt = true;
    },

    /** Everything up to a position has been sent. @param {Position} position */
    follow(position) {
      pass(cursor.position()?.offset ?? 0, position.offset);
      cursor.follow(position);
    },

    isReading: () => isReading,

    /**
     * Take an event in its turn. Return the patterns with handlers that may see it, without those that a repair has served; null: none.
     * @param {string} topic @param {EventMeta} meta
     */
    admit(topic, meta) {
      const before = cursor.position()?.offset ?? 0;
      const admits = cursor.admit(meta);
      const { offset = 0, id } = meta;
      // Others are of a replay, which is its own pattern's.
      if (!admits || !open.length || offset <= before) return admits;
      pass(before, offset, id);
      open = open.filter(({ gap }) => /** @type {number} */ (gap.to) >= offset);
      const brought = open.filter(({ had }) => had.has(offset));
      for (const job of open) if (/** @type {number} */ (job.gap.from) <= offset && dropped(job, topic)) job.had.set(offset, id);
      return (/** @type {string} */ pattern) => admits(pattern) && !brought.some(({ patterns }) => patterns.includes(pattern));
    },

    /** Dispatch a part of the log again, to one pattern's handlers. @param {string} pattern @param {Range} range */
    async replay(pattern, { from, to, epoch = cursor.position()?.epoch }) {
      let count = 0;
      let next = /** @type {number | null} */ (from);
      // At least once: the gateway names the fault of a range, such as that of a gap without offsets.
      do {
        await requests.turn(Infinity);
        next = await page(pattern, next, to, epoch, (topic, data, meta) => {
          count++;
          deliver(topic, data, meta, (each) => each === pattern);
        });
      } while (next);
      return count;
    },

    /** End every repair. */
    clear,
  };
}
