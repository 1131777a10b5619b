/**
 * The status: the gateway's word on itself and on the client's rights while a connection lasts.
 *
 * In: `status`, in its turn. Out: lifecycle events; the connection leaves a gateway that is about to stop; subscriptions that
 * the client's grants no longer cover end, and those that were refused are asked for again when it has new grants; the gateway may
 * ask for a fresh token.
 *
 * @import { Status } from "../language/protocol.js"
 * @import { Facts } from "./session.js"
 *
 * @typedef {object} StatusOwner
 * @property {Facts} facts that it brings
 * @property {ReturnType<typeof import("../subscriptions/subscriptions.js").createSubscriptions>} subscriptions
 * @property {{ move: (reason: string, inMs: number) => void, renew: () => void }} connection
 * @property {(name: string, body: any) => void} tell a lifecycle event
 * @property {(refused: import("../subscriptions/subscription.js").Subscription[]) => void} retry
 * @property {() => void} changed
 */
import { fromWire } from "../language/errors.js";

/** Return what takes a status. @param {StatusOwner} owner */
export function createStatus({ facts, subscriptions, connection, tell, retry, changed }) {
  return (/** @type {Status} */ { bus = facts.bus, moving, ended = [], unauthorized, granted, refresh }) => {
    facts.bus = bus;
    if (moving) {
      // Anywhere in the time given, so that the next gateway does not get every client at once.
      connection.move(moving.reason, Math.random() * moving.withinS * 1000);
      tell("connection:moving", moving);
    }
    // Those that end now are not asked for again.
    if (granted) retry(subscriptions.refused());
    for (const { pattern, error } of ended) tell("delivery:error", subscriptions.end(pattern, fromWire(error)));
    if (refresh) connection.renew();
    tell("connection:unauthorized", unauthorized && fromWire(unauthorized));
    changed();
  };
}
