/**
 * Notices: lifecycle events, as the application gets them.
 *
 * In: a name and a body; without a body nothing is reported. Out: calls of the gate's handlers of that name, with the patterns under the names that the page
 * uses. An error without a handler goes to the console. A failed attempt of a client that was connected before does not, because the client reconnects by
 * itself.
 *
 * @import { Handlers } from "./session.js"
 */
import { report } from "../base/report.js";

/**
 * @param {Pick<Handlers, "trigger" | "_heard">} gate
 * @param {(patterns: string[]) => string[]} named returns the page's names of wire patterns
 * @param {() => unknown} wasUp whether the client was connected before
 * @param {() => void} changed
 */
export function createNotices(gate, named, wasUp, changed) {
  /** @param {string} name @param {any} body @param {any} [more] */
  return function tell(name, body, ...more) {
    if (!body) return;
    if (body.patterns) body = { ...body, patterns: named(body.patterns) };
    if (body.pattern) body = { ...body, pattern: named([body.pattern]).at(-1) };
    const { error = body } = body;
    const expected = name === "connection:refused" && error.retry && wasUp();
    if (error.code && !expected && !gate._heard(name)) report(error);
    gate.trigger(name, body, ...more);
    changed();
  };
}
