/**
 * Newest: for patterns whose handlers want only the newest event of each topic (`latest` without repair), a returning client delivers only those. No I/O.
 *
 * In: events that the client has missed, which the gateway reads from the log. Out: the newest event of each topic, in order, once the client has
 * everything, a gap is reported, or another handler of the pattern wants every event; and the number of replaced events.
 *
 * @import { EventMeta } from "../language/protocol.js"
 */
import { OVERFLOW } from "../language/protocol.js";

/** The most topics with a held event. Beyond it the held events are delivered. */
const MOST = 1000;

/**
 * @param {ReturnType<typeof import("../subscriptions/subscriptions.js").createSubscriptions>} subscriptions
 * @param {(topic: string, data: any, meta: EventMeta, admits: (pattern: string) => boolean) => void} deliver
 * @param {(name: string, body: any) => void} tell a lifecycle event
 */
export function createNewest(subscriptions, deliver, tell) {
  /** Events by pattern and topic, the latest last. @type {Map<string, [topic: string, data: any, meta: EventMeta, admits: (pattern: string) => boolean]>} */
  const held = new Map();
  /** The patterns of held events. @type {Set<string>} */
  const patterns = new Set();
  let conflated = 0;

  function flush() {
    if (!held.size) return;
    const all = [...held.values()];
    held.clear();
    patterns.clear();
    if (conflated) tell("delivery:backpressure", { state: "off", queued: 0, queuedBytes: 0, discarded: 0, conflated, where: "browser" });
    conflated = 0;
    for (const event of all) deliver(...event);
  }

  return {
    /** Hold a missed event, if the handlers of a pattern want only the newest. Return whether it is held. @param {string} pattern @param {string} topic @param {any} data @param {EventMeta} meta */
    holds(pattern, topic, data, meta) {
      const { overflow = "", repair } = subscriptions.find(pattern) ?? {};
      if (overflow !== OVERFLOW[1] || repair) {
        // The handlers have begun to want every event. The held events come first.
        if (patterns.has(pattern)) flush();
        return false;
      }
      const key = `${pattern} ${topic}`;
      if (held.delete(key)) conflated++;
      if (held.size >= MOST) flush();
      patterns.add(pattern);
      held.set(key, [topic, data, meta, (each) => each === pattern]);
      return true;
    },

    /** Return the offset up to which no event is held. */
    upTo: () => (held.values().next().value?.[2].offset ?? Infinity) - 1,

    flush,
  };
}
