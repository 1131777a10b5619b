/** The entry point `headgate/offline`: publishes that wait for a connection. */
import { COUNT } from "../language/options.js";
import { Gate } from "../index.js";
import { createIndexedDbStore } from "./indexeddb-store.js";
import { createMemoryStore } from "./memory-store.js";
import { MAX_AGE_MS, runOutbox } from "./outbox.js";

/** @type {import("../language/options.js").Table} */
const OPTIONS = {
  storage: [["memory", "indexeddb"], "memory"],
  user: [/./],
  maxEvents: [COUNT, 1000],
  maxBytes: [[1, 2 ** 30, true], 1_048_576],
  maxAgeMs: MAX_AGE_MS,
};

/**
 * Make the outbox of a gate. It ends with the gate.
 * @param {import("../gate.js").Gate} gate
 * @param {{ storage?: "memory" | "indexeddb", user?: string, maxEvents?: number, maxBytes?: number, maxAgeMs?: number }} [options]
 *   `storage`: `memory` (default) ends with the page, `indexeddb` needs `user` and a secure context
 * @throws {TypeError} an option of the wrong type; no user; a browser without the storage
 */
export function createOutbox(gate, options = {}) {
  const { storage, user, maxEvents, maxBytes, maxAgeMs } = Gate._optionsOf(gate, "createOutbox", OPTIONS, options);
  return runOutbox(gate, storeFor(gate.address, storage, user, { maxEvents, maxBytes }), { user, maxAgeMs });
}

/** @param {string} address @param {string} storage @param {string | undefined} user @param {import("./memory-store.js").Bounds} bounds */
function storeFor(address, storage, user, bounds) {
  if (storage === "memory") return createMemoryStore(bounds);
  // The user of these entries; others must not send them.
  if (!user) throw TypeError("headgate: an outbox in IndexedDB needs the name of its user");
  try {
    // A page without an origin may not even check what exists.
    if (globalThis.indexedDB && globalThis.navigator.locks) return createIndexedDbStore(`${address} ${user}`, bounds);
  } catch {}
  throw TypeError("headgate: this page has no IndexedDB, Web Locks or BroadcastChannel (a secure context of an origin of its own has): use storage \"memory\"");
}
