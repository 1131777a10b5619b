/**
 * The status: the gateway's notices about itself and the client's grants during a connection.
 *
 * In: `status`, in its turn. Out: lifecycle events. The connection leaves a gateway that is about to stop. Subscriptions that the client's grants no longer
 * cover end. Refused ones are requested again when the client has new grants. The token is refreshed when the gateway asks for it.
 *
 * @import { Status } from "../language/protocol.js"
 * @import { Facts } from "./session.js"
 *
 * @typedef {object} StatusOwner
 * @property {Facts} facts to update
 * @property {ReturnType<typeof import("../subscriptions/subscriptions.js").createSubscriptions>} subscriptions
 * @property {{ move: (reason: string, inMs: number) => void, renew: () => void }} connection
 * @property {(name: string, body: any) => void} tell a lifecycle event
 * @property {(refused: import("../subscriptions/subscription.js").Subscription[]) => void} retry
 * @property {() => void} changed
 */
import { fromWire } from "../language/errors.js";

/** Return the function that takes a status. @param {StatusOwner} owner */
export function createStatus({ facts, subscriptions, connection, tell, retry, changed }) {
  return (/** @type {Status} */ { bus = facts.bus, moving, ended = [], unauthorized, granted, refresh }) => {
    facts.bus = bus;
    if (moving) {
      // At a random moment, so that the next gateway does not get all clients at once.
      connection.move(moving.reason, Math.random() * moving.withinS * 1000);
      tell("connection:moving", moving);
    }
    // Before the ended ones, which must not be requested again.
    if (granted) retry(subscriptions.refused());
    for (const { pattern, error } of ended) tell("delivery:error", subscriptions.end(pattern, fromWire(error)));
    if (refresh) connection.renew();
    tell("connection:unauthorized", unauthorized && fromWire(unauthorized));
    changed();
  };
}
