/**
 * The inbox: messages from the gateway, events and notices in one queue.
 *
 * In: messages from the welcome on, in the order of arrival. Out: one call for each by its name, in that order, so that a gap is reported before anything
 * later. If the page is too slow, the client disconnects, dispatches the received messages, and resumes after them.
 *
 * The queue is empty whenever an attempt to connect begins (connection-state.js), so its messages belong to one connection and begin with its welcome.
 * Therefore the cursor never passes an event that was not dispatched. Events follow the welcome that names their beginning, and a CONNECT resumes from the
 * last dispatched event.
 *
 * @import { Handlers } from "./session.js"
 */
import { camelCase } from "../language/field-names.js";
import { EVENT, WELCOME } from "../language/protocol.js";
import { createSlicedQueue } from "../base/sliced-queue.js";

/**
 * @param {Pick<Handlers, "_handlerFailed">} gate
 * @param {number} limit messages that may wait
 * @param {Record<string, (...args: any[]) => void>} takes by name; a message with another name is of a later protocol and is ignored
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
      // Without the welcome, the connection is useless.
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
