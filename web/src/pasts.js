/**
 * Pasts: the parts of the log that subscriptions have asked for (`since`), each until it is over. No I/O.
 *
 * In: `expect` when a handler asks, the offsets of events. Out: which replayed events a pattern's handlers may see, and where
 * a past goes on after a reconnection. The gateway sends a past in order and then everything later, so the first new event
 * after some of it ends it. Events that were under way before any of it came may reach the pattern's handlers too; they are
 * noted, so that they do not come twice.
 *
 * @import { Position, Since } from "./protocol.js"
 * @typedef {{ since: Since, last: number, begun: boolean, noted: Set<number> }} Past `last`: the latest offset of it that came;
 *   `begun`: some of it has come since it was asked for the last time
 */

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
      pasts.set(pattern, { since, last: NOTHING, begun: false, noted: new Set() });
    },

    /**
     * Ask again for the pasts that are not over, each where it goes on: behind an offset of the line that the client knows.
     * @param {(pattern: string, since: Since) => void} ask @param {Position} [position] of the client
     */
    rewind(ask, position) {
      for (const [pattern, past] of pasts) {
        past.begun = false;
        if ("offset" in past.since) past.since = { ...position, ...past.since };
        ask(pattern, past.since);
      }
    },

    /** The pattern has no handlers any more. @param {string} pattern */
    forget: (pattern) => pasts.delete(pattern),

    /** The log has lost its end: what was seen of it above an offset counts for nothing. @param {number} to */
    rollBack(to) {
      for (const past of pasts.values()) {
        const { since } = past;
        if ("offset" in since && !since.epoch) past.since = { offset: Math.max(0, Math.min(since.offset, to)) };
        past.last = Math.min(past.last, to);
        for (const offset of past.noted) if (offset > to) past.noted.delete(offset);
      }
    },

    /** A new event came: each past that was coming is over. */
    pass() {
      for (const [pattern, { begun }] of pasts) if (begun) pasts.delete(pattern);
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
      if (!past || offset <= past.last || past.noted.has(offset)) return false;
      past.last = offset;
      past.since = { offset };
      past.begun = true;
      return true;
    },
  };
}
