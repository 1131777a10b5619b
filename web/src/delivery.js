/**
 * Delivery: gives events to the handlers of the patterns that match, each at most once.
 *
 * In: events in the order of arrival, or read again from the log. Out: calls of the gate's handlers, and the cursor moved on
 * before them, so that a handler that throws or disconnects cannot have an event come again.
 *
 * @import { Dispatcher } from "./dispatcher.js"
 * @import { EventMeta } from "./protocol.js"
 */

/** @param {Dispatcher} gate @param {ReturnType<typeof import("./cursor.js").createCursor>} cursor */
export function createDelivery(gate, cursor) {
  let received = 0;

  /** @param {string} topic @param {any} data @param {EventMeta} meta @param {(pattern: string) => boolean} admits */
  function deliver(topic, data, meta, admits) {
    return gate.dispatch(topic, data, (pattern) => ({ id: null, offset: null, replayed: false, ...meta, topic, data, pattern }), admits);
  }

  return {
    /** Give an event to handlers, wherever it comes from. Return to how many. */
    deliver,

    /** Take an event in its turn. @param {string} topic @param {any} data @param {EventMeta} [meta] */
    event(topic, data, meta = /** @type {any} */ ({})) {
      const admits = cursor.admit(meta);
      if (admits && deliver(topic, data, meta, admits)) received++;
    },

    /** Return how many events that arrived had handlers. */
    received: () => received,
  };
}
