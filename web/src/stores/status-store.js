/**
 * The store of a connection's status: `gate.status`, in one word.
 *
 * @import { Status } from "../connection/connection-state.js"
 * @import { Gate } from "../gate.js"
 * @import { Store } from "./snapshot-store.js"
 */
import { createStore } from "./snapshot-store.js";

/**
 * @param {Gate} gate
 * @returns {Store<Status>}
 */
export function statusStore(gate) {
  const read = () => gate.status;
  return createStore(
    /** @type {Status} */ ("idle"),
    (changed) => {
      const listen = () => changed();
      gate.on("status:change", listen);
      return { read, end: () => void gate.off("status:change", listen) };
    },
    read,
  );
}
