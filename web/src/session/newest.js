/**
 * The newest: what a returning client delivers for patterns with handlers that want only the newest event per topic (`latest` without repair).
 *
 * In: events that the client has missed, which the gateway reads from the log. Out: the newest of each topic, in order, once the client
 * has everything, a gap is reported, or other handlers of the pattern want every event; how many it has replaced. No I/O.
 *
 * @import { EventMeta } from "../language/protocol.js"
 */
import { OVERFLOW } from "../language/protocol.js";

/** Topics that may be held: then the newest so far are delivered. */
const MOST = 1000;

/**
 * @param {ReturnType<typeof import("../subscriptions/subscriptions.js").createSubscriptions>} subscriptions
 * @param {(topic: string, data: any, meta: EventMeta, admits: (pattern: string) => boolean) => void} deliver
 * @param {(name: string, body: any) => void} tell a lifecycle event
 */
export function createNewest(subscriptions, deliver, tell) {
  /** By pattern and topic, the latest last. @type {Map<string, [topic: string, data: any, meta: EventMeta, admits: (pattern: string) => boolean]>} */
  const held = new Map();
  /** Those of held events. @type {Set<string>} */
  const patterns = new Set();
  let conflated = 0;

  function flush() {
    if (!held.size) return;
    const all = [...held.values()];
    held.clear();
    patterns.clear();
    if (conflated) tell("delivery:backpressure", { state: "off", queued: 0, queuedBytes: 0, discarded: 0, conflated, where: "browser" });
    for (const event of all) deliver(...event);
  }

  return {
    /** Return whether a missed event is held for the handlers of a pattern, or for none. @param {string} pattern @param {string} topic @param {any} data @param {EventMeta} meta */
    holds(pattern, topic, data, meta) {
      const { overflow = "", repair } = subscriptions.find(pattern) ?? {};
      if (overflow !== OVERFLOW[1] || repair) {
        // Since the handlers want it otherwise. What they wait for comes first.
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

    /** Return an offset up to which nothing is held. */
    upTo: () => (held.values().next().value?.[2].offset ?? Infinity) - 1,

    flush,
  };
}
