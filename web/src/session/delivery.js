/**
 * Delivery: gives an event to the handlers of the patterns that match, wherever it comes from: in its turn, or read again from the log.
 * It remembers the latest that handlers have had, for a gateway that asks (`headgate trace`).
 *
 * What it remembers is of one epoch, as the cursor names it: in another one an offset may be another event's.
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
  /** Their offsets. @type {number[]} */
  let had = [];
  /** Nothing is known of other events up to here. */
  let since = 0;
  /** @type {string | undefined} */
  let epoch;
  /** Ids of events that this page has published, and that its handlers are not to get. @type {Set<string>} */
  const leftOut = new Set();

  /** Return the position. Forget everything if the epoch is another one. */
  function stand() {
    const position = cursor.position();
    if (position && position.epoch !== epoch) {
      ({ epoch, offset: since } = position);
      had = [];
    }
    return position;
  }

  return {
    /** Keep an event of this page's own from its handlers. @param {string} id */
    leaveOut(id) {
      leftOut.add(id);
      const [first] = leftOut;
      if (leftOut.size > MOST) leftOut.delete(first);
    },

    /**
     * Call the handlers of an event. Return how many there were. A handler of `users.me.…` gets the topic by that name.
     * @param {string} topic @param {any} data @param {EventMeta} meta
     * @param {(pattern: string) => boolean} admits whether a pattern's handlers may see it
     */
    deliver(topic, data, meta, admits) {
      const mine = own.mine(topic);
      const describe = (/** @type {string} */ pattern) => ({ id: null, offset: null, replayed: false, ...meta, topic: isMine(pattern) ? mine : topic, data, pattern });
      if (leftOut.has(/** @type {string} */ (meta.id))) {
        // A load needs it for after an answer that may be older.
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

    /** Return whether handlers have had the event at an offset, as far as it is known: of those above `since`; and the position. @param {number} offset */
    handled: (offset) => ({ ...stand(), handled: had.includes(offset), since }),
  };
}
