/**
 * Delivery: gives an event to the handlers of the patterns that match, wherever it comes from: in its turn, or read again from the log.
 *
 * @import { Dispatcher } from "./dispatcher.js"
 * @import { EventMeta } from "./protocol.js"
 */

/**
 * Call the handlers of an event. Return how many there were.
 * @param {Dispatcher} gate
 * @param {string} topic @param {any} data @param {EventMeta} meta
 * @param {(pattern: string) => boolean} admits whether a pattern's handlers may see it
 */
export function deliver(gate, topic, data, meta, admits) {
  return gate.dispatch(topic, data, (pattern) => ({ id: null, offset: null, replayed: false, ...meta, topic, data, pattern }), admits);
}
