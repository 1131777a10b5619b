/**
 * Pasts: the parts of the log that subscriptions have asked for (`since`), each until it is over. No I/O.
 *
 * In: `expect` when a handler asks, the offsets of events. Out: which replayed events a pattern's handlers may see, and where
 * a past goes on after a reconnection. The gateway sends a past in order and then everything later, so the first new event
 * after some of it ends it. Events that were under way before any of it came may reach the pattern's handlers too; they are
 * noted, so that they do not come twice.
 *
 * @import { Since } from "./protocol.js"
 * @typedef {{ since: Since, last: number, noted: Set<number> }} Past `last`: the latest offset of it that came
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
      pasts.set(pattern, { since, last: NOTHING, noted: new Set() });
    },

    /** Return the pasts that are not over: pattern and where it goes on. @returns {[string, Since][]} */
    expected: () => [...pasts].map(([pattern, { since }]) => [pattern, since]),

    /** The pattern has no handlers any more. @param {string} pattern */
    forget: (pattern) => pasts.delete(pattern),

    /** The log was lost, and every past with it. */
    clear: () => pasts.clear(),

    /** A new event came: each past that was coming is over. */
    pass() {
      for (const [pattern, { last }] of pasts) if (last > NOTHING) pasts.delete(pattern);
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
      return true;
    },
  };
}
