/**
 * Places: the number of subscriptions, in all and with wildcards, that the gateway allows a client. Pure state, no I/O.
 *
 * In: the limits of each welcome, each step of a subscription. Out: whether there is a place for one more.
 *
 * @import { Limits } from "../language/protocol.js"
 * @import { Subscription, SubscriptionState } from "./subscription.js"
 */
import { hasWildcard } from "../language/topic.js";

/** The name of each limit in a refusal, and its name in a welcome. @type {Record<string, string>} */
export const LIMITS = { subscriptions: "maxSubscriptions", wildcards: "maxWildcards" };
/** Return whether an error means that there is no place. @param {any} error of the wire, or the code and parts of one */
export const isFull = (error) => error?.code === "limit_reached" && error.name in LIMITS;

/** States in which the gateway has a subscription, or may have it. @type {SubscriptionState[]} */
const HELD = ["requested", "active", "changed", "releasing"];

/** Return whether a subscription has a place. @param {SubscriptionState} state */
export const isHeld = (state) => HELD.includes(state);

/** Return the number of places that patterns take. @param {string[]} patterns @returns {Record<string, number>} */
export const placesOf = (patterns) => ({ subscriptions: patterns.length, wildcards: patterns.filter(hasWildcard).length });

export function createPlaces() {
  /** @type {Record<string, number>} */
  const held = { subscriptions: 0, wildcards: 0 };
  /** @type {Limits} */
  let limits = {};

  /** Return the names of the limits that apply to a pattern. @param {string} pattern */
  const namesOf = (pattern) => Object.keys(LIMITS).slice(0, hasWildcard(pattern) ? 2 : 1);

  return {
    /** The gateway has named its limits. @param {Limits} named */
    limit(named) {
      limits = named;
    },

    /** A subscription has taken a step. Return whether that has freed a place. @param {Subscription} subscription @param {SubscriptionState} before */
    moved({ pattern, state }, before) {
      const by = Number(isHeld(state)) - Number(isHeld(before));
      if (by) for (const name of namesOf(pattern)) held[name] += by;
      return by < 0;
    },

    /** Return the limit that leaves no place for a subscription; undefined: there is a place, or the subscription has one. @param {Subscription} subscription */
    lacks({ pattern, state }) {
      const name = isHeld(state) ? undefined : namesOf(pattern).find((each) => held[each] >= (limits[LIMITS[each]] ?? Infinity));
      return name && { name, limit: limits[LIMITS[name]] };
    },
  };
}
