/**
 * The welcome: the first message of each connection.
 *
 * In: `welcome`, in its turn. Out: the cursor, the subscriptions, the request budget and the connection learn of it, in this
 * order, and then the application. The connection may be gone since the welcome arrived: then its events still count, and
 * its subscriptions do not.
 *
 * @import { Limits, Welcome } from "../language/protocol.js"
 * @import { Facts } from "./session.js"
 *
 * @typedef {object} WelcomeOwner
 * @property {Facts} facts that it brings
 * @property {ReturnType<typeof import("./cursor.js").createCursor>} cursor
 * @property {ReturnType<typeof import("../subscriptions/subscriptions.js").createSubscriptions>} subscriptions
 * @property {{ limit: (limits: Limits) => void }} requests
 * @property {{ welcomed: (isLive: boolean) => boolean }} connection
 * @property {(name: string, body: any) => void} tell a lifecycle event
 */

import { fromWire } from "../language/errors.js";

/** @param {any} message @throws {TypeError} it is no welcome: nothing of it may count */
export function checkWelcome({ epoch, offset, limits, subscriptions }) {
  if (!(epoch && offset >= 0 && limits && subscriptions.map)) throw TypeError(`epoch ${epoch}, offset ${offset}`);
}

/** Return what takes a welcome. @param {WelcomeOwner} owner */
export function createWelcome({ facts, cursor, subscriptions, requests, connection, tell }) {
  return (/** @type {Welcome} */ welcome) => {
    if (!cursor.welcome(welcome)) return;
    const { session, user = null, limits, resumed, epoch, offset } = welcome;
    Object.assign(facts, { session, user, limits });
    requests.limit(limits);
    subscriptions.limit(limits);
    if (!connection.welcomed(cursor.state() === "live")) {
      // Its later messages still move the position, past what these miss.
      for (const { pattern, error } of welcome.subscriptions) if (error?.retry) subscriptions.end(pattern, fromWire(error));
      return;
    }
    const refusals = subscriptions.welcome(welcome.subscriptions);
    tell("connection:up", welcome);
    for (const refusal of refusals) tell("delivery:error", refusal);
    if (resumed) tell("delivery:resumed", { epoch, offset });
  };
}
