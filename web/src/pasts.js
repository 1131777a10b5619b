/**
 * Pasts: the parts of the log that subscriptions have asked for (`since`), each until it is over. No I/O.
 *
 * In: `expect` when a handler asks, the offsets of events. Out: which replayed events a pattern's handlers may see, and where
 * a past goes on after a reconnection. The gateway sends a past in order and then everything later, so the first new event
 * after some of it ends it. Events that were under way before any of it came may reach the pattern's handlers too; they are
 * noted, so that they do not come twice.
 *
 * @import { Since } from "./protocol.js"
 * @typedef {"expected" | "coming" | "over"} PastState
 * @typedef {{ life: Machine<PastState, "replay" | "pass" | "expire">, since: Since, last: number, noted: Set<number> }} Past
 *   `last`: the latest offset of it that came
 */
import { Machine } from "./machine.js";

/** Events that may be noted before a past begins; if that many come first, it will not begin any more. */
const MAX_NOTED = 1000;

/**
 * `replay`: an event of it came · `pass`: a new event came · `expire`: too many new events came first.
 * @type {Record<PastState, Partial<Record<"replay" | "pass" | "expire", PastState>>>}
 */
export const PAST = {
  expected: { replay: "coming", pass: "expected", expire: "over" },
  coming: { replay: "coming", pass: "over" },
  over: {},
};

export function createPasts() {
  /** @type {Map<string, Past>} by pattern */
  const pasts = new Map();

  return {
    /** Expect a past for a pattern. @param {string} pattern @param {Since} since */
    expect(pattern, since) {
      pasts.set(pattern, { life: new Machine(PAST, "expected"), since, last: 0, noted: new Set() });
    },

    /** Return what is still to come: pattern and where it goes on. @returns {[string, Since][]} */
    expected: () => [...pasts].map(([pattern, { since }]) => [pattern, since]),

    /** The pattern has no handlers any more. @param {string} pattern */
    forget: (pattern) => pasts.delete(pattern),

    /** The log was lost, and every past with it. */
    clear: () => pasts.clear(),

    /** A new event came: each past that was coming is over. */
    pass() {
      for (const [pattern, { life }] of pasts) if (life.take("pass")) pasts.delete(pattern);
    },

    /** A new event is given to a pattern's handlers. @param {string} pattern @param {number} offset */
    note(pattern, offset) {
      const past = pasts.get(pattern);
      if (past && past.noted.add(offset).size > MAX_NOTED && past.life.take("expire")) pasts.delete(pattern);
    },

    /** Return whether a replayed event belongs to a pattern's past and is new to its handlers. @param {string} pattern @param {number} offset */
    admit(pattern, offset) {
      const past = pasts.get(pattern);
      if (!past || offset <= past.last || past.noted.has(offset)) return false;
      past.life.take("replay");
      past.last = offset;
      past.since = { offset };
      return true;
    },
  };
}
