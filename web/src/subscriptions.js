/**
 * Subscriptions: what the application wants, against what the gateway has acknowledged. Pure state, no I/O.
 *
 * In: `want` as handlers come and leave, `connecting` / `welcomed` / `down` from the connection, `settled` with each
 * acknowledgement. Out: `outOfStep` and `request`, what would bring the two into step, one in flight per
 * pattern, so that a quick off-and-on costs at most one request. Nothing is ever sent for a pattern that is settled.
 *
 * @import { Overflow, Since, SubscribeRequest, SubscribeResult } from "./protocol.js"
 * @typedef {"idle" | "asking" | "active" | "leaving" | "refused"} Standing where the gateway stands, as far as we know
 * @typedef {{ pattern: string, error: HeadgateError }} Refusal
 *
 * @typedef {{ overflow?: Overflow, repair?: boolean }} Wishes of a handler
 *
 * @typedef {object} Record
 * @property {string} pattern
 * @property {Overflow} [overflow] the policy that is wanted; undefined: the pattern is not
 * @property {Overflow} [asked] the policy that the gateway was last asked for; undefined: it has nothing of ours
 * @property {Since} [since] taken out once the gateway has it
 * @property {Since} [asking] the one that went with the latest request
 * @property {boolean} [repair]
 * @property {Standing} standing
 * @property {HeadgateError} [error] why it was refused
 */
import { fromWire } from "./errors.js";
import { OVERFLOW, SUBSCRIBE, UNSUBSCRIBE } from "./protocol.js";
import { matches } from "./topic.js";

/** @import { HeadgateError } from "./errors.js" */

export function createSubscriptions() {
  /** @type {Map<string, Record>} */
  const records = new Map();

  /** Return what is wanted, in order of arrival. */
  const wanted = () => [...records.values()].filter(({ overflow }) => overflow);

  /** Not in force (any more). @param {Record} record @param {HeadgateError} [error] without: it may be asked for again */
  function leave(record, error) {
    delete record.asked;
    record.standing = error ? "refused" : "idle";
    record.error = error;
    forget(record);
    return error && { pattern: record.pattern, error };
  }

  /** Let what was refused be asked for again. @param {Record} record */
  function again(record) {
    if (record.standing === "refused") record.standing = "idle";
  }

  /** Ask for a part of the past (again). @param {string} pattern @param {Since} since */
  function rewind(pattern, since) {
    const record = records.get(pattern);
    if (record) Object.assign(record, { since, asked: undefined });
  }

  /** Forget what is neither wanted nor known to the gateway. @param {Record} record */
  function forget({ pattern, overflow, standing }) {
    if (!overflow && standing === "idle") records.delete(pattern);
  }

  /**
   * Take the outcome of the request for a pattern, or the end of a subscription that the client's token no longer grants.
   * @param {string} pattern
   * @param {HeadgateError} [error]
   * @returns {Refusal | undefined} one that the application must hear of
   */
  function settled(pattern, error) {
    const record = records.get(pattern);
    if (!record) return;
    const leaving = record.standing === "leaving";
    // A refusal to let us leave means that there is nothing to leave, unless it may pass.
    if (leaving ? !error?.retry : error) return leave(record, leaving || error?.retry || !record.overflow ? undefined : error);
    record.standing = "active";
    // Not one that was asked for since.
    if (!leaving && record.since === record.asking) delete record.since;
  }

  return {
    wanted,

    /**
     * Want a pattern for these handlers, or no more if there are none. The strongest policy counts: one that must not lose
     * events is not made to by another that may.
     * @param {string} pattern
     * @param {Wishes[]} wishes of its handlers
     * @param {Wishes & { since?: Since }} [added] those of the handler that comes: what was refused is asked for again
     */
    want(pattern, wishes, added) {
      /** @type {Record} */
      const record = records.get(pattern) ?? { pattern, standing: "idle" };
      records.set(pattern, record);
      record.overflow = wishes[0] && (strongest(wishes) ?? OVERFLOW[0]);
      record.repair = wishes.some(({ repair }) => repair !== false);
      if (added) again(record);
      if (added?.since) rewind(pattern, added.since);
      if (wishes[0]) return;
      again(record);
      forget(record);
    },

    again,

    rewind,

    /** Return what is known of a pattern. @param {string} pattern */
    find: (pattern) => records.get(pattern),

    /**
     * Return the requests to send in CONNECT. A connection that resumes carries only what was in force before: a pattern
     * that is new must not be given the past that came before its handler.
     * @param {any} resuming true if it does
     */
    connecting: (resuming) => wanted().filter(({ asked }) => !resuming || asked).map(ask),

    /**
     * Take the gateway's word on what was sent in CONNECT.
     * @param {SubscribeResult[]} results
     * @returns {(Refusal | undefined)[]} what was refused
     */
    welcomed(results) {
      const refused = results.map(({ pattern, error }) => settled(pattern, error && fromWire(error)));
      // Sent and left out of the answer: not in force.
      for (const record of records.values()) if (record.standing === "asking") leave(record);
      return refused;
    },

    /** The connection is gone, and with it every subscription and request; what had been asked for goes with the next. */
    down() {
      for (const record of records.values()) {
        record.standing = "idle";
        forget(record);
      }
    },

    /** Return what is refused now. */
    refused: () => wanted().filter(({ standing }) => standing === "refused"),

    /** Return which of these patterns are wanted and repaired. @param {string[]} patterns */
    repaired: (patterns) => patterns.filter((pattern) => records.get(pattern)?.repair),

    /** Return the policy that decides about a topic. @param {string} topic */
    policy: (topic) => strongest(wanted().filter(({ pattern }) => matches(pattern, topic))),

    /** Return one that is to be asked for, or left. @returns {Record | undefined} */
    outOfStep: () =>
      [...records.values()].find(
        ({ standing, asked, overflow }) => (standing === "idle" || standing === "active") && asked !== overflow,
      ),

    /**
     * Return the request that brings it into step, and count it as in flight.
     * @param {Record} record
     * @returns {[name: string, body: SubscribeRequest]}
     */
    request(record) {
      if (record.overflow) return [SUBSCRIBE, ask(record)];
      record.standing = "leaving";
      return [UNSUBSCRIBE, { pattern: record.pattern }];
    },

    settled,
  };
}

/** @param {Wishes[]} wishes @returns {Overflow | undefined} */
function strongest(wishes) {
  return OVERFLOW.find((policy) => wishes.some(({ overflow = OVERFLOW[0] }) => overflow === policy));
}

/** @param {Record} record @returns {SubscribeRequest} */
function ask(record) {
  const { pattern, overflow, since } = record;
  Object.assign(record, { standing: "asking", asked: overflow, asking: since });
  return { pattern, overflow: overflow === OVERFLOW[0] ? undefined : overflow, since };
}
