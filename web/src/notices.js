/**
 * Notices: lifecycle events, as the application gets them.
 *
 * In: a name and what is to be told, which may be nothing. Out: the gate's handlers of that name; an error that nobody listens for goes to the
 * console, but not each failed attempt of a client that was connected before: it comes back by itself.
 *
 * @import { Dispatcher } from "./dispatcher.js"
 */
import { report } from "./dispatcher.js";

/**
 * @param {Dispatcher} gate
 * @param {() => unknown} wasUp whether the client was connected before
 * @param {() => void} changed
 */
export function createNotices(gate, wasUp, changed) {
  /** @param {string} name @param {any} body @param {any} [more] */
  return function tell(name, body, ...more) {
    if (!body) return;
    const { error = body } = body;
    const expected = name === "connection:refused" && error.retry && wasUp();
    if (error.code && !expected && !gate._heard(name)) report(error);
    gate.trigger(name, body, ...more);
    changed();
  };
}
