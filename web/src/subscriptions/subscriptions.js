/**
 * The subscriptions of one client, by pattern. Pure state, no I/O.
 *
 * In: `acquire` and `release` as handlers come and leave; `connect`, `welcome` and `disconnect` from the connection. Out: the requests that CONNECT carries,
 * subscriptions with a due request, and the patterns whose events a full queue keeps. Each subscription follows its own table (subscription.js). The gateway
 * is never asked for more than its limits allow; the others wait for a place.
 *
 * @import { Limits, Since, SubscribeRequest, SubscribeResult } from "../language/protocol.js"
 * @import { Refusal, SubscriptionState, Wishes } from "./subscription.js"
 */
import { fromWire, HeadgateError } from "../language/errors.js";
import { OVERFLOW } from "../language/protocol.js";
import { createPlaces, isHeld, placesOf } from "./places.js";
import { Subscription } from "./subscription.js";

/** The most subscriptions that a gateway answers in one CONNECT. */
const MAX_CONNECT = 1024;

/**
 * @param {(pattern: string) => void} [stirred] called after each step of a pattern's subscription
 * @param {(pattern: string, followed: boolean) => void} [missing] called when handlers miss events; `followed`: only those after the client's position
 */
export function createSubscriptions(stirred = () => {}, missing = () => {}) {
  /** @type {Map<string, Subscription>} */
  const all = new Map();
  /** Those with a due request, in order of arrival. @type {Set<Subscription>} */
  const due = new Set();
  /** Those that wait for a place, in order of arrival. @type {Set<Subscription>} */
  const waiting = new Set();
  /** Those to request again after a pause. @type {Set<Subscription>} */
  const retrying = new Set();
  const places = createPlaces();

  /** @param {Subscription} each @param {SubscriptionState} before */
  function moved(each, before) {
    const isFree = places.moved(each, before);
    due[each.can("request") ? "add" : "delete"](each);
    waiting[each.is("waiting") ? "add" : "delete"](each);
    retrying[each.is("retrying") ? "add" : "delete"](each);
    if (each.is("retrying", "wanted", "refused", "waiting")) {
      const { followed } = each;
      each.followed = false;
      // The others are reported to the application.
      if (each.overflow && each.is("retrying", "wanted")) missing(each.pattern, followed);
    }
    if (each.is("idle")) all.delete(each.pattern);
    stirred(each.pattern);
    // Not for one that the gateway has just refused, and would refuse again.
    if (isFree && !each.is("waiting")) retry(1);
  }

  /** Request some of those that wait and now have a place. @param {number} most */
  function retry(most) {
    for (const each of waiting) if (most && !places.lacks(each) && each.take("retry")) most--;
  }

  /** Return those with handlers, in order of arrival. */
  const wanted = () => [...all.values()].filter(({ overflow }) => overflow);

  return {
    wanted,
    retrying,

    /** The gateway has named its limits. @param {Limits} limits */
    limit: places.limit,

    /** A pattern gets a handler. @param {string} pattern @param {Wishes} wishes */
    acquire(pattern, wishes) {
      const subscription = all.get(pattern) ?? new Subscription(pattern, moved);
      all.set(pattern, subscription);
      subscription.join(wishes);
    },

    /** A pattern has lost a handler. Return whether it has others. @param {string} pattern @param {Wishes} wishes that it had */
    release(pattern, wishes) {
      const isWanted = all.get(pattern)?.leave(wishes);
      // It may have been about to take a place.
      if (!all.has(pattern)) retry(1);
      return isWanted;
    },

    /** Return the subscription of a pattern, if there is one. @param {string} pattern */
    find: (pattern) => all.get(pattern),

    /** Ask for replays (again). @param {string} pattern @param {Since[]} replays */
    rewind(pattern, replays) {
      const subscription = all.get(pattern);
      if (subscription) subscription.replays = [...replays];
    },

    /** The handlers of a pattern have everything up to the client's position, even if the answer to their request has not come. @param {string} pattern */
    followed(pattern) {
      Object.assign(all.get(pattern) ?? {}, { replays: [], followed: true });
    },

    /**
     * Return the requests to send in CONNECT. A CONNECT that resumes carries only what was active before, because a new pattern must not get events from
     * before its handler, and one CONNECT cannot carry a position and a replay.
     * @param {any} resuming whether it resumes @param {any} [follows] whether the patterns get everything after the client's position
     * @returns {SubscribeRequest[]}
     */
    connect(resuming, follows = resuming) {
      const carried = wanted().filter((each) => !resuming || (each.is("suspended") && !each.replays.length));
      // Each takes its place before the next one is checked.
      return carried.slice(0, MAX_CONNECT).flatMap((each) => {
        if (places.lacks(each)) return [];
        const [, request] = each.request();
        each.followed = Boolean(follows);
        return [request];
      });
    },

    /**
     * Take the gateway's answers to the requests in CONNECT.
     * @param {SubscribeResult[]} results
     * @returns {(Refusal | undefined)[]}
     */
    welcome(results) {
      const refusals = results.map(({ pattern, error }) => all.get(pattern)?.answered(error && fromWire(error)));
      // A request without an answer is not active.
      for (const each of all.values()) each.answered(fromWire({ retry: true }));
      // Refused ones have freed their places.
      retry(Infinity);
      return refusals;
    },

    /** The connection is gone. */
    disconnect() {
      for (const each of all.values()) each.disconnect();
    },

    /** The gateway has ended a pattern. @param {string} pattern @param {HeadgateError} error */
    end: (pattern, error) => all.get(pattern)?.end(error),

    /** Return the refused ones. */
    refused: () => wanted().filter((each) => each.is("refused")),

    /** Return which of these patterns are wanted and repaired. @param {string[]} patterns */
    repaired: (patterns) => patterns.filter((pattern) => all.get(pattern)?.repair),

    /**
     * Return the wanted patterns whose events a full queue keeps, without those of a gap, because the gateway may have dropped its events before it knew a
     * stronger policy.
     * @param {string[]} dropping the patterns of the gap
     */
    keeping: (dropping) => wanted().flatMap(({ pattern, overflow }) => (overflow === OVERFLOW[2] || dropping.includes(pattern) ? [] : [pattern])),

    /** Return a subscription with a due request and a place. Those without a place wait. @param {(refusal: Refusal | undefined) => void} tell */
    due(tell) {
      /** Places that will be free once the gateway has answered. @type {Record<string, number> | undefined} */
      let leaving;
      for (const each of due) {
        const limit = places.lacks(each);
        if (!limit) return each;
        leaving ??= placesOf([...all.values()].flatMap(({ overflow, state, pattern }) => (!overflow && isHeld(state) ? [pattern] : [])));
        if (leaving[limit.name]-- < 1) tell(each.wait(new HeadgateError("limit_reached", limit)));
      }
    },
  };
}
