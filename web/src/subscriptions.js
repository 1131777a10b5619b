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
 * @property {Overflow} [_asked] the policy that the gateway was last asked for; undefined: it has nothing of ours
 * @property {Since} [since] taken out once the gateway has it
 * @property {Since} [_asking] the one that went with the latest request
 * @property {boolean} [_repair]
 * @property {Standing} _standing
 * @property {HeadgateError} [_error] why it was refused
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
    delete record._asked;
    record._standing = error ? "refused" : "idle";
    record._error = error;
    forget(record);
    return error && { pattern: record.pattern, error };
  }

  /** Let what was refused be asked for again. @param {Record} record */
  function again(record) {
    if (record._standing === "refused") record._standing = "idle";
  }

  /** Ask for a part of the past (again). @param {string} pattern @param {Since} since */
  function rewind(pattern, since) {
    const record = records.get(pattern);
    if (record) Object.assign(record, { since, _asked: undefined });
  }

  /** Forget what is neither wanted nor known to the gateway. @param {Record} record */
  function forget({ pattern, overflow, _standing }) {
    if (!overflow && _standing === "idle") records.delete(pattern);
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
    const leaving = record._standing === "leaving";
    // A refusal to let us leave means that there is nothing to leave, unless it may pass.
    if (leaving ? !error?.retry : error) return leave(record, leaving || error?.retry || !record.overflow ? undefined : error);
    record._standing = "active";
    // Not one that was asked for since.
    if (!leaving && record.since === record._asking) delete record.since;
  }

  return {
    _wanted: wanted,

    /**
     * Want a pattern for these handlers, or no more if there are none. The strongest policy counts: one that must not lose
     * events is not made to by another that may.
     * @param {string} pattern
     * @param {Wishes[]} wishes of its handlers
     * @param {Wishes & { since?: Since }} [added] those of the handler that comes: what was refused is asked for again
     */
    _want(pattern, wishes, added) {
      /** @type {Record} */
      const record = records.get(pattern) ?? { pattern, _standing: "idle" };
      records.set(pattern, record);
      record.overflow = wishes[0] && (strongest(wishes) ?? OVERFLOW[0]);
      record._repair = wishes.some(({ repair }) => repair !== false);
      if (added) again(record);
      if (added?.since) rewind(pattern, added.since);
      if (wishes[0]) return;
      again(record);
      forget(record);
    },

    _again: again,

    _rewind: rewind,

    /** Return what is known of a pattern. @param {string} pattern */
    _find: (pattern) => records.get(pattern),

    /**
     * Return the requests to send in CONNECT. A connection that resumes carries only what was in force before: a pattern
     * that is new must not be given the past that came before its handler.
     * @param {any} resuming true if it does
     */
    _connecting: (resuming) => wanted().filter(({ _asked }) => !resuming || _asked).map(ask),

    /**
     * Take the gateway's word on what was sent in CONNECT.
     * @param {SubscribeResult[]} results
     * @returns {(Refusal | undefined)[]} what was refused
     */
    _welcomed(results) {
      const refused = results.map(({ pattern, error }) => settled(pattern, error && fromWire(error)));
      // Sent and left out of the answer: not in force.
      for (const record of records.values()) if (record._standing === "asking") leave(record);
      return refused;
    },

    /** The connection is gone, and with it every subscription and request; what had been asked for goes with the next. */
    _down() {
      for (const record of records.values()) {
        record._standing = "idle";
        forget(record);
      }
    },

    /** Return what is refused now. */
    _refused: () => wanted().filter(({ _standing }) => _standing === "refused"),

    /** Return which of these patterns are wanted and repaired. @param {string[]} patterns */
    _repaired: (patterns) => patterns.filter((pattern) => records.get(pattern)?._repair),

    /** Return the policy that decides about a topic. @param {string} topic */
    _policy: (topic) => strongest(wanted().filter(({ pattern }) => matches(pattern, topic))),

    /** Return one that is to be asked for, or left. @returns {Record | undefined} */
    _outOfStep: () =>
      [...records.values()].find(
        ({ _standing, _asked, overflow }) => (_standing === "idle" || _standing === "active") && _asked !== overflow,
      ),

    /**
     * Return the request that brings it into step, and count it as in flight.
     * @param {Record} record
     * @returns {[name: string, body: SubscribeRequest]}
     */
    _request(record) {
      if (record.overflow) return [SUBSCRIBE, ask(record)];
      record._standing = "leaving";
      return [UNSUBSCRIBE, { pattern: record.pattern }];
    },

    _settled: settled,
  };
}

/** @param {Wishes[]} wishes @returns {Overflow | undefined} */
function strongest(wishes) {
  return OVERFLOW.find((policy) => wishes.some(({ overflow = OVERFLOW[0] }) => overflow === policy));
}

/** @param {Record} record @returns {SubscribeRequest} */
function ask(record) {
  const { pattern, overflow, since } = record;
  Object.assign(record, { _standing: "asking", _asked: overflow, _asking: since });
  return { pattern, overflow: overflow === OVERFLOW[0] ? undefined : overflow, since };
}
