/**
 * The cursor: how far this client has got in the log, what is a duplicate, and which of the past it has asked for. No I/O.
 *
 * In: positions from `welcome`, `cursor` and every event that is dispatched. Out: `resume`, what the next CONNECT carries,
 * and `admit`, who may see an event. Rule: an event is new if and only if its offset is above the cursor. One at or below
 * it is a duplicate, unless it is marked `replayed` and a pattern has asked for the past (`since`): then it goes to that
 * pattern's handlers alone, once.
 *
 * The gateway sends a past in order and then everything later, so the first new event after some of it ends it. Until any
 * of it comes, events that were under way already may reach the pattern's handlers; they are noted, not to come twice.
 *
 * @import { EventMeta, Position, Since } from "./protocol.js"
 * @typedef {{ since: Since, last: number, noted: Set<number> }} Past `since`: where it goes on after a reconnection
 */

/** Events noted while a past has not begun; if that many come first, it will not begin any more. */
const MAX_NOTED = 1000;
/** Below every offset. */
const NONE = -1;

export function createCursor() {
  /** @type {string | null} */
  let epoch = null;
  /** @type {number | null} what to resume from */
  let offset = null;
  /** Everything up to here has been seen; NONE: `offset` is only where to resume, and rules nothing out. */
  let seen = NONE;
  /** @type {Map<string, Past>} by pattern */
  const pasts = new Map();

  /** Where another log stands, of which the gap has not been told yet. @type {Position | null} */
  let announced = null;

  /** @param {number} to */
  function move(to) {
    offset = seen = to;
  }

  /**
   * The log was lost: another begins, the announced one if there is, of which anything may come. Until something does,
   * resume from there.
   * @param {string | null} [of] epoch
   */
  function restart(of = announced?.epoch ?? epoch) {
    epoch = of;
    offset = announced?.offset ?? offset;
    announced = null;
    seen = NONE;
    pasts.clear();
  }

  /** @returns {Position | undefined} */
  const resume = () => (!epoch ? undefined : { epoch, offset: /** @type {number} */ (offset) });

  return {
    /** Return what a CONNECT asks to resume from. */
    resume,

    /** Return where the client stands, for the application. @returns {Position | undefined} */
    shown: () => announced ?? resume(),

    /**
     * The gateway stands in another log, or the log has lost its end; a gap will say so. Until it has, the old position is
     * what to resume from: a connection that breaks in between must not take the loss for known.
     * @param {Position} position
     */
    announce({ epoch: of, offset: at }) {
      announced = { epoch: of, offset: at };
    },

    /** An attempt begins: what the last connection announced and did not tell will be announced again. */
    forget() {
      announced = null;
    },

    /** Move forward to a position; a new epoch starts anew. @param {{ epoch?: string | null, offset: number }} position */
    advance({ epoch: of = epoch, offset: at }) {
      if (announced || of !== epoch) restart(of);
      if (at >= seen) move(at);
    },

    restart,

    /** Expect a part of the past for a pattern. @param {string} pattern @param {Since} since */
    expect(pattern, since) {
      pasts.set(pattern, { since, last: NONE, noted: new Set() });
    },

    /** What is still to come of the past, by pattern. */
    pasts,

    /**
     * Count an event as seen, and return who may see it (null: nobody, it is a duplicate). What is returned is to be asked
     * once for each pattern that matches.
     * @param {EventMeta} meta
     * @returns {((pattern: string) => boolean) | null}
     */
    admit({ offset: at, replayed }) {
      if (at === undefined) return () => true;
      if (announced) restart();
      const isNew = at > seen;
      if (isNew) {
        move(at);
        for (const [pattern, { last }] of pasts) if (last >= 0) pasts.delete(pattern);
      } else if (!replayed) return null;
      return (pattern) => {
        const past = pasts.get(pattern);
        if (isNew) {
          if (past && past.noted.add(at).size > MAX_NOTED) pasts.delete(pattern);
          return true;
        }
        if (!past || at <= past.last || past.noted.has(at)) return false;
        past.last = at;
        past.since = { offset: at };
        return true;
      };
    },
  };
}
