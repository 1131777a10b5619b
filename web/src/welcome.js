/**
 * The welcome: the first message of each connection, and the facts that it brings about this client.
 *
 * In: `welcome`, in its turn. Out: the cursor, the subscriptions, the request budget and the connection learn of it, in this
 * order, and then the application. The connection may be gone since the welcome arrived: then its events still count, and
 * its subscriptions do not.
 *
 * @import { Limits, Welcome } from "./protocol.js"
 *
 * @typedef {object} WelcomeOwner
 * @property {ReturnType<typeof import("./cursor.js").createCursor>} cursor
 * @property {ReturnType<typeof import("./subscriptions.js").createSubscriptions>} subscriptions
 * @property {{ limit: (limits: Limits) => void }} requests
 * @property {{ welcomed: (isLive: boolean) => boolean }} connection
 * @property {(name: string, body: any) => void} tell a lifecycle event
 */

/** @param {WelcomeOwner} owner */
export function createWelcome({ cursor, subscriptions, requests, connection, tell }) {
  let facts = { session: /** @type {string | null} */ (null), user: /** @type {string | null} */ (null), limits: /** @type {Limits} */ ({}) };

  return {
    /** Return the facts of the latest one; the session is null until there was one. */
    facts: () => facts,

    /** @param {Welcome} welcome */
    take(welcome) {
      if (!cursor.welcome(welcome)) return;
      const { session, user = null, limits, resumed, epoch, offset } = welcome;
      facts = { session, user, limits };
      requests.limit(limits);
      if (!connection.welcomed(cursor.state() === "live")) return;
      const refusals = subscriptions.welcome(welcome.subscriptions);
      tell("connection:up", welcome);
      for (const refusal of refusals) tell("delivery:error", refusal);
      if (resumed) tell("delivery:resumed", { epoch, offset });
    },
  };
}
