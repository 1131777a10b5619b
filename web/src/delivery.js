/**
 * Delivery: gives events to the handlers of the patterns that match, each at most once.
 *
 * In: events in the order of arrival, or read again from the log. Out: calls of the gate's handlers, and the cursor moved on
 * before them (`admit`), so that a handler that throws or disconnects cannot have an event come again.
 *
 * @import { Dispatcher } from "./dispatcher.js"
 * @import { EventMeta } from "./protocol.js"
 */

/**
 * @param {Dispatcher} gate
 * @param {(topic: string, meta: EventMeta) => ((pattern: string) => boolean) | null} admit which patterns' handlers may see an event; null: it is a duplicate
 */
export function createDelivery(gate, admit) {
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
      const admits = admit(topic, meta);
      if (admits && deliver(topic, data, meta, admits)) received++;
    },

    /** Return how many events that arrived had handlers. */
    received: () => received,
  };
}
