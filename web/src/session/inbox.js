/**
 * The inbox: messages from the gateway, each taken in its turn, events and notices in one line.
 *
 * In: messages from the welcome on, in the order of arrival. Out: a call of the taker of its name, in that order, so that
 * a gap is reported before anything later. When the page is too slow, the client disconnects, dispatches the messages that have
 * arrived, and resumes after them.
 *
 * The line is empty whenever a connection is attempted (connection-state.js), so its messages belong to one connection
 * and begins with its welcome. That is why the cursor can never pass an event that was not dispatched: events follow the
 * welcome with their beginning, and a CONNECT resumes from the last one dispatched.
 *
 * @import { Handlers } from "./session.js"
 */
import { camelCase } from "../language/field-names.js";
import { EVENT, WELCOME } from "../language/protocol.js";
import { createSlicedQueue } from "../base/sliced-queue.js";

/**
 * @param {Pick<Handlers, "_handlerFailed">} gate
 * @param {number} limit messages that may wait
 * @param {Record<string, (...args: any[]) => void>} takes by name; a message of any other name is one of a later protocol
 * @param {{ overflowed: (reason: string) => void, unreadable: (error: unknown) => void, dispatched: () => void }} connection
 * @param {(name: string, body: any) => void} tell a lifecycle event
 */
export function createInbox(gate, limit, takes, connection, tell) {
  const queue = createSlicedQueue(limit, take, {
    full() {
      connection.overflowed("the page is too slow");
      tellPressure("on");
    },
    drained: () => tellPressure("off"),
    empty: connection.dispatched,
  });

  /** @param {[name: string, args: any[]]} message */
  function take([name, args]) {
    try {
      if (Object.hasOwn(takes, name)) takes[name](...(name === EVENT ? args : camelCase(args)));
    } catch (error) {
      // Nothing could come of this connection.
      if (name === WELCOME) connection.unreadable(error);
      else gate._handlerFailed(error, name);
    }
  }

  /** @param {"on" | "off"} state */
  function tellPressure(state) {
    tell("delivery:backpressure", { state, queued: queue.depth(), queuedBytes: 0, discarded: 0, where: "browser" });
  }

  return queue;
}
