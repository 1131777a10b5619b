/**
 * Subscriptions: those of one client, by pattern. Pure state, no I/O.
 *
 * In: `acquire` and `release` as handlers come and leave; `connect`, `welcome` and `disconnect` from the connection. Out: the
 * requests that CONNECT carries, subscriptions that have a request due, and the policy that decides about a topic. Each of them
 * follows its own table (subscription.js).
 *
 * @import { HeadgateError } from "../language/errors.js"
 * @import { Since, SubscribeRequest, SubscribeResult } from "../language/protocol.js"
 * @import { Refusal, Wishes } from "./subscription.js"
 */
import { fromWire } from "../language/errors.js";
import { PatternIndex } from "../language/pattern-index.js";
import { OVERFLOW } from "../language/protocol.js";
import { Subscription } from "./subscription.js";

export function createSubscriptions() {
  /** @type {Map<string, Subscription>} */
  const all = new Map();

  /** Return those that have handlers, in order of arrival. */
  const wanted = () => [...all.values()].filter(({ overflow }) => overflow);

  return {
    wanted,

    /** A pattern gets a handler. @param {string} pattern @param {Wishes} wishes */
    acquire(pattern, wishes) {
      const subscription = all.get(pattern) ?? new Subscription(pattern);
      all.set(pattern, subscription);
      subscription.join(wishes);
    },

    /** A pattern has lost a handler. Return whether others are left. @param {string} pattern @param {Wishes} wishes that it had */
    release: (pattern, wishes) => all.get(pattern)?.leave(wishes),

    /** Return the subscription of a pattern, if there is one. @param {string} pattern */
    find: (pattern) => all.get(pattern),

    /** Ask for replays (again). @param {string} pattern @param {Since[]} replays */
    rewind(pattern, replays) {
      const subscription = all.get(pattern);
      if (subscription) subscription.replays = [...replays];
    },

    /**
     * Return the requests to send in CONNECT. One that resumes carries only what was active before: a pattern that is new
     * must not be given the past that came before its handler, and a position and a replay do not go together.
     * @param {any} resuming true if it does
     * @returns {SubscribeRequest[]}
     */
    connect: (resuming) => wanted().filter((each) => !resuming || (each.is("suspended") && !each.replays.length)).map((each) => each.request()[1]),

    /**
     * Take the gateway's answers to the requests in CONNECT.
     * @param {SubscribeResult[]} results
     * @returns {(Refusal | undefined)[]}
     */
    welcome(results) {
      const refusals = results.map(({ pattern, error }) => all.get(pattern)?.answered(error && fromWire(error)));
      // Sent and left out of the answer: not active.
      for (const each of all.values()) each.answered(fromWire({ retry: true }));
      return refusals;
    },

    /** The connection is gone. */
    disconnect() {
      for (const each of all.values()) each.disconnect();
    },

    /** The token no longer grants a pattern. @param {string} pattern @param {HeadgateError} error */
    end: (pattern, error) => all.get(pattern)?.end(error),

    /** Return those that are refused now. */
    refused: () => wanted().filter((each) => each.is("refused")),

    /** Return which of these patterns are wanted and repaired. @param {string[]} patterns */
    repaired: (patterns) => patterns.filter((pattern) => all.get(pattern)?.repair),

    /** Return what says which policy decides about a topic, by the subscriptions that there are now. */
    policies() {
      const now = new PatternIndex();
      for (const { pattern, overflow } of wanted()) now.add(pattern.split("."), overflow);
      return (/** @type {string} */ topic) => {
        const matching = now.match(topic);
        return OVERFLOW.find((policy) => matching.includes(policy));
      };
    },

    /** Return one that has a request due, and forget those that are idle. */
    due() {
      for (const [pattern, each] of all) if (each.is("idle")) all.delete(pattern);
      return [...all.values()].find((each) => each.can("request"));
    },
  };
}
