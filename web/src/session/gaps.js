/**
 * Gaps: events that this client did not get, as the gateway reports them, their repair from the log, and the number still missing.
 *
 * In: gap notices in their turn, pages of the log. Out: `delivery:gap` (repairing or lost), `delivery:resumed`, replayed events. A gap is reported when its notice is dispatched, before anything later.
 *
 * An overflow gap does not move the position. If the connection breaks before anything later comes, the next one sends the events of the gap as well. Each
 * of them reaches the handlers once, by the repair or in its turn, whichever comes first. If the next connection continues in another epoch, the log may
 * have lost events that a repair has fetched. The gateway knows only the position, so the client reports them.
 *
 * @import { EventMeta, Gap, Position } from "../language/protocol.js"
 * @import { Job } from "./repair.js"
 *
 * @typedef {{ repairing: boolean, lost: boolean }} Fate
 * @typedef {{ from: number | null, to: number | null, epoch?: string }} Range offsets, inclusive, and their epoch, default the present one
 *
 * @typedef {object} GapsOwner
 * @property {ReturnType<typeof import("./delivery.js").createDelivery>["deliver"]} deliver
 * @property {{ gaps: number, missed: number }} counts the number of gaps, and of their missing events as far as it is known
 * @property {ReturnType<typeof import("./cursor.js").createCursor>} cursor
 * @property {ReturnType<typeof import("./replays.js").createReplays>} replays
 * @property {ReturnType<typeof import("../subscriptions/subscriptions.js").createSubscriptions>} subscriptions
 * @property {{ request: (name: string, body: object) => Promise<any> }} connection
 * @property {{ waitMs: () => number, turn: (patienceMs: number) => Promise<void> | undefined }} requests `waitMs` takes a request out of the budget and returns 0, or
 *   returns how long to wait for one; `turn` waits for it
 * @property {(name: string, body: any) => void} tell a lifecycle event
 */
import * as wire from "../language/protocol.js";
import { createRepair } from "./repair.js";
import { meets } from "../language/pattern-index.js";

/** @param {GapsOwner} owner */
export function createGaps({ deliver, counts, cursor, replays, subscriptions, connection, requests, tell }) {
  const repair = createRepair(fetch, requests.waitMs, repaired);
  /** Repairs, finished or not, of gaps that no later event has passed. @type {Job[]} */
  let open = [];
  /** Whether handlers are being called with events of a page of the log. */
  let isReading = false;

  /** Whether a full queue has dropped an event, and no stronger policy has kept it. @param {Job} job @param {string} topic */
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
      // These events were seen, and are no longer in the log.
      const end = /** @type {number} */ (from) - 1;
      cursor.rollBack(end, /** @type {string} */ (gap.epoch));
      repair.giveUp(end);
      for (const { had } of open) for (const offset of had.keys()) if (offset > end) had.delete(offset);
    } else counts.missed += gap.count ?? (from && to ? to - from + 1 : 0);
    // The ranges of other reasons may contain later events for patterns with another policy.
    if (reason === wire.LOG_LOST) {
      cursor.restart();
      clear();
    } else if (reason === wire.TRIMMED && to) cursor.skip(to);
    const wanted = recoverable ? subscriptions.repaired(gap.patterns) : [];
    const job = wanted.length > 0 && repair.add(gap, wanted, subscriptions.keeping(gap.patterns));
    if (job) open.push(job);
    tell("delivery:gap", { ...gap, repairing: Boolean(job), lost: !job && (!recoverable || wanted.length > 0) });
  }

  /**
   * Read one page of the log.
   * @param {string} pattern @param {number | null} from @param {number | null} to @param {string | undefined} epoch of these offsets
   * @param {(topic: string, data: any, meta: EventMeta) => void} each
   * @returns {Promise<number | null>} where the next page begins
   */
  async function page(pattern, from, to, epoch, each) {
    const losses = cursor.losses();
    const { events, next } = await connection.request(wire.REPLAY, { pattern, from, to, epoch });
    // The page may hold events that the log has lost since. Read it again.
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
      // An event that an earlier pattern matches was fetched with that pattern.
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
    // The gateway's count is exact. The others have no offset, or were trimmed, conflated or refused, and so are lost.
    const rest = /** @type {number} */ (gap.count) - count;
    if (rest > 0 && patterns.length === gap.patterns.length) tell("delivery:gap", { ...gap, count: rest, recoverable: false, repairing: false, lost: true });
  }

  /**
   * The client moves from one position to another, perhaps by an event. If the client has resumed below events that a repair had fetched, they have come
   * again. Those that have not are lost from the log. The gateway knows only the position and cannot report that.
   * @param {number} before @param {number} to @param {unknown} [id] of the event at `to`
   */
  function pass(before, to, id) {
    for (const { gap, patterns, had, isInDoubt } of open) {
      for (const [at, known] of had) {
        if (before < at && (at === to && id ? known !== id : at <= to && isInDoubt) && had.delete(at)) {
          tell("delivery:gap", {
            ...gap, epoch: cursor.position()?.epoch, patterns, from: at, to: at, count: 1, reason: wire.ROLLED_BACK, recoverable: false, repairing: false, lost: true,
          });
        }
      }
    }
  }

  return {
    take,

    /** A welcome continues in another epoch, and the log may have lost events. */
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
     * Take an event in its turn. Return a function that says whether the handlers of a pattern may see it, which excludes those that a repair has served;
     * null: none may.
     * @param {string} topic @param {EventMeta} meta
     */
    admit(topic, meta) {
      const before = cursor.position()?.offset ?? 0;
      const admits = cursor.admit(meta);
      const { offset = 0, id } = meta;
      // The others belong to a replay of one pattern.
      if (!admits || !open.length || offset <= before) return admits;
      pass(before, offset, id);
      open = open.filter(({ gap }) => /** @type {number} */ (gap.to) >= offset);
      const brought = open.filter(({ had }) => had.has(offset));
      for (const job of open) if (/** @type {number} */ (job.gap.from) <= offset && dropped(job, topic)) job.had.set(offset, id);
      return (/** @type {string} */ pattern) => admits(pattern) && !brought.some(({ patterns }) => patterns.includes(pattern));
    },

    /** Dispatch a part of the log again, to the handlers of one pattern. @param {string} pattern @param {Range} range */
    async replay(pattern, { from, to, epoch = cursor.position()?.epoch }) {
      let count = 0;
      let next = from;
      // At least once, because the gateway checks the range, such as that of a gap without offsets.
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
