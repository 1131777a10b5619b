/**
 * Delivery: gives each event, live or read from the log, to the handlers of the matching patterns. It remembers the latest events that handlers have had,
 * for a gateway that asks (`headgate trace`).
 *
 * These offsets are of one epoch, that of the cursor, because in another epoch an offset may belong to another event.
 *
 * @import { EventMeta } from "../language/protocol.js"
 * @import { Handlers } from "./session.js"
 */

import { isMine } from "../subscriptions/own-topics.js";

/** How many events are remembered, and how many ids of this page's own. */
const MOST = 1000;

/**
 * @param {Pick<Handlers, "dispatch" | "_loads">} gate @param {ReturnType<typeof import("./cursor.js").createCursor>} cursor
 * @param {ReturnType<typeof import("../subscriptions/own-topics.js").createOwnTopics>} own
 */
export function createDelivery(gate, cursor, own) {
  /** The offsets of the latest events that handlers have had. @type {number[]} */
  let had = [];
  /** Whether handlers have had an event at or below this offset is unknown, unless `had` has it. */
  let since = 0;
  /** @type {string | undefined} */
  let epoch;
  /** Ids of events that this page has published and its own handlers must not get. @type {Set<string>} */
  const leftOut = new Set();

  /** Return the position. Forget the offsets of another epoch. */
  function stand() {
    const position = cursor.position();
    if (position && position.epoch !== epoch) {
      ({ epoch, offset: since } = position);
      had = [];
    }
    return position;
  }

  return {
    /** Do not give an event of this page to its handlers. @param {string} id */
    leaveOut(id) {
      leftOut.add(id);
      const [first] = leftOut;
      if (leftOut.size > MOST) leftOut.delete(first);
    },

    /**
     * Call the handlers of an event and return their number. A handler of `users.me.…` gets the topic in that form.
     * @param {string} topic @param {any} data @param {EventMeta} meta
     * @param {(pattern: string) => boolean} admits whether a pattern's handlers may see it
     */
    deliver(topic, data, meta, admits) {
      const mine = own.mine(topic);
      const describe = (/** @type {string} */ pattern) => ({ id: null, offset: null, replayed: false, ...meta, topic: isMine(pattern) ? mine : topic, data, pattern });
      if (leftOut.has(/** @type {string} */ (meta.id))) {
        // A load applies it after an answer that may be older.
        for (const load of gate._loads) load._takeOwn([topic, mine], describe);
        return 0;
      }
      const handlers = gate.dispatch(topic, data, describe, (pattern) => admits(own.wired(pattern)), mine);
      if (handlers && meta.offset) {
        stand();
        if (had.push(meta.offset) > MOST) since = Math.max(since, /** @type {number} */ (had.shift()));
      }
      return handlers;
    },

    /** Return the position, and whether handlers have had the event at an offset. The answer holds for offsets above `since`. @param {number} offset */
    handled: (offset) => ({ ...stand(), handled: had.includes(offset), since }),
  };
}
