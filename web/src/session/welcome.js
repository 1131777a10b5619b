/**
 * The welcome: the first message of each connection.
 *
 * In: `welcome`, in its turn. Out: calls of the cursor, the request budget, the subscriptions and the connection, in this order, and then of the
 * application. If the connection has ended since the welcome arrived, its events still count, but its subscriptions do not.
 *
 * @import { Limits, Welcome } from "../language/protocol.js"
 * @import { Facts } from "./session.js"
 *
 * @typedef {object} WelcomeOwner
 * @property {Facts} facts to update
 * @property {ReturnType<typeof import("./cursor.js").createCursor>} cursor
 * @property {ReturnType<typeof import("../subscriptions/subscriptions.js").createSubscriptions>} subscriptions
 * @property {{ limit: (limits: Limits) => void }} requests
 * @property {{ welcomed: (isLive: boolean) => boolean }} connection
 * @property {(name: string, body: any) => void} tell a lifecycle event
 */

import { fromWire } from "../language/errors.js";

/** @param {any} message @throws {TypeError} it is not a welcome, and no part of it may count */
export function checkWelcome({ epoch, offset, limits, subscriptions }) {
  if (!(epoch && offset >= 0 && limits && subscriptions.map)) throw TypeError(`epoch ${epoch}, offset ${offset}`);
}

/** Return the function that takes a welcome. @param {WelcomeOwner} owner */
export function createWelcome({ facts, cursor, subscriptions, requests, connection, tell }) {
  return (/** @type {Welcome} */ welcome) => {
    if (!cursor.welcome(welcome)) return;
    const { session, user = null, limits, resumed, epoch, offset } = welcome;
    Object.assign(facts, { session, user, limits });
    requests.limit(limits);
    subscriptions.limit(limits);
    if (!connection.welcomed(cursor.state() === "live")) {
      // The later messages of the connection still move the position, past events that these subscriptions miss.
      for (const { pattern, error } of welcome.subscriptions) if (error?.retry) subscriptions.end(pattern, fromWire(error));
      return;
    }
    const refusals = subscriptions.welcome(welcome.subscriptions);
    tell("connection:up", welcome);
    for (const refusal of refusals) tell("delivery:error", refusal);
    if (resumed) tell("delivery:resumed", { epoch, offset });
  };
}
