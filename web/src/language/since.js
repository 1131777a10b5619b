/**
 * Since: where in the log a subscription starts, and which of two such places brings all that the other brings. Pure functions.
 *
 * @import { Since } from "./protocol.js"
 */

/** Return whether one place brings all that another brings; false if only the gateway can decide. @param {any} one @param {any} other */
export function covers(one, other) {
  return one.epoch === other.epoch && (one.last >= other.last || one.offset <= other.offset || one.time <= other.time);
}

/** Return places with one more, without those that others cover. @param {Since[]} places @param {Since} since @returns {Since[]} */
export function withSince(places, since) {
  return places.some((each) => covers(each, since)) ? places : [...places.filter((each) => !covers(since, each)), since];
}
