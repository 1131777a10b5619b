/**
 * Pasts: the parts of the log that subscriptions have asked for (`since`), each until it is over. No I/O.
 *
 * In: `expect` when a handler asks, the offsets of events. Out: which replayed events a pattern's handlers may see, and where
 * a past goes on after a reconnection. The gateway sends a past in order and then everything later, so the first new event
 * after some of it ends it. Events that were under way before any of it came may reach the pattern's handlers too; they are
 * noted, so that they do not come twice.
 *
 * Handlers of one pattern may ask for several. The gateway reads them in one go, from the earliest place on: it goes back to the start of
 * a later one, if that lies before. So one that is asked for while another is being read may go back once, and cuts nothing short.
 *
 * @import { Position, Since } from "../language/protocol.js"
 * @typedef {{ asked: Since[], last: number, begun: boolean, later: Since[], noted: Set<number> }} Past `asked`: all that is not over;
 *   `last`: the latest offset of it that came; `begun`: some of it has come since it was asked for the last time; `later`: those of `asked`
 *   that may go back behind `last`
 */
import { withSince } from "../language/since.js";

/** Events that may be noted before a past begins; if that many come first, it will not begin any more. */
const MAX_NOTED = 1000;
/** Below every offset: nothing of it has come. */
const NOTHING = -1;

export function createPasts() {
  /** @type {Map<string, Past>} by pattern */
  const pasts = new Map();

  return {
    /** Expect a past for a pattern. @param {string} pattern @param {Since} since */
    expect(pattern, since) {
      const past = pasts.get(pattern) ?? { asked: [], last: NOTHING, begun: false, later: [] };
      pasts.set(pattern, { ...past, asked: withSince(past.asked, since), later: past.begun ? [...past.later, since] : [], noted: new Set() });
    },

    /**
     * Ask again for the pasts that are not over, each where it goes on: behind an offset of the line that the client knows.
     * @param {(pattern: string, pasts: Since[]) => void} ask @param {Position} [position] of the client
     */
    rewind(ask, position) {
      for (const [pattern, past] of pasts) {
        past.begun = false;
        past.asked = past.asked.map((since) => ("offset" in since ? { ...position, ...since } : since));
        ask(pattern, past.asked);
      }
    },

    /** A pattern is acknowledged, with the newest offset of the log: what comes behind that is no past. @param {string} pattern @param {number} [to] none: it was given up */
    acknowledge(pattern, to = Infinity) {
      const past = pasts.get(pattern);
      if (past) past.asked = past.asked.map((since) => ("offset" in since ? { ...since, offset: Math.min(since.offset, to) } : since));
    },

    /** The pattern has no handlers any more. @param {string} pattern */
    forget: (pattern) => pasts.delete(pattern),

    /** The log has lost its end: what was seen of it above an offset counts for nothing. @param {number} to */
    rollBack(to) {
      for (const past of pasts.values()) {
        const lower = (/** @type {Since} */ since) => ("offset" in since && !since.epoch ? { offset: Math.max(0, Math.min(since.offset, to)) } : since);
        past.asked = past.asked.map(lower);
        past.later = past.later.map(lower);
        past.last = Math.min(past.last, to);
        for (const offset of past.noted) if (offset > to) past.noted.delete(offset);
      }
    },

    /** A new event came: each past that was coming is over. */
    pass() {
      for (const [pattern, { begun, later }] of pasts) {
        if (!begun) continue;
        pasts.delete(pattern);
        // Those that were asked for since may come behind it.
        for (const since of later) this.expect(pattern, since);
      }
    },

    /**
     * Return whether the handlers of a pattern may see an event: a new one always, an old one if it belongs to the past.
     * @param {string} pattern @param {number} offset @param {boolean} isNew
     */
    admit(pattern, offset, isNew) {
      const past = pasts.get(pattern);
      if (isNew) {
        if (past && past.noted.add(offset).size > MAX_NOTED) pasts.delete(pattern);
        return true;
      }
      if (!past || past.noted.has(offset) || (offset <= past.last && !past.later.shift())) return false;
      past.last = offset;
      past.asked = past.later.length ? past.asked : [{ offset }];
      past.begun = true;
      return true;
    },
  };
}
