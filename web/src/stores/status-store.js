/**
 * The store of `gate.status`.
 *
 * @import { Status } from "../connection/connection-state.js"
 * @import { Store } from "./snapshot-store.js"
 */
import { Gate } from "../index.js";
import { createStore } from "./snapshot-store.js";

/**
 * @param {Gate} gate
 * @returns {Store<Status>}
 */
export function statusStore(gate) {
  Gate._optionsOf(gate, "statusStore", {}, {});
  const read = () => gate.status;
  return createStore(
    /** @type {Status} */ ("idle"),
    (changed) => {
      const part = { _isPart: true };
      gate.on("status:change", () => changed(), part);
      return { read, end: () => void gate.off(null, null, part) };
    },
    read,
  );
}
