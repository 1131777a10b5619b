/**
 * Since: where in the log a subscription starts, and whether one such start includes all events of another. Pure functions.
 *
 * @import { Since } from "./protocol.js"
 */

/** Return whether one start includes all events of another; false if only the gateway can know. @param {any} one @param {any} other */
export function covers(one, other) {
  return one.epoch === other.epoch && (one.last >= other.last || one.offset <= other.offset || one.time <= other.time);
}

/** Return starts with one more, without those that another one covers. @param {Since[]} places @param {Since} since @returns {Since[]} */
export function withSince(places, since) {
  return places.some((each) => covers(each, since)) ? places : [...places.filter((each) => !covers(since, each)), since];
}
