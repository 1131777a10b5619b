/** The entry point `headgate/offline`: publishes that wait for a connection. */
import { createIndexedDbStore } from "./outbox-indexeddb.js";
import { createMemoryStore } from "./outbox-memory.js";
import { runOutbox } from "./outbox.js";

const DAY_MS = 86_400_000;

/**
 * Make the outbox of a gate. It ends with the gate.
 * @param {import("./gate.js").Gate} gate
 * @param {{ storage?: "memory" | "indexeddb", user?: string, maxEvents?: number, maxBytes?: number, maxAgeMs?: number }} [options]
 *   `storage`: `memory` (default) ends with the page, `indexeddb` needs `user` and a secure context
 * @throws {TypeError} an option of the wrong type; no user; a browser without the storage
 */
export function createOutbox(gate, { storage = "memory", user, maxEvents = 1000, maxBytes = 1_048_576, maxAgeMs = DAY_MS } = {}) {
  for (const [name, value] of Object.entries({ maxEvents, maxBytes, maxAgeMs })) {
    if (!(value >= 1)) throw TypeError(`headgate: ${name} must be at least 1, not ${value}`);
  }
  return runOutbox(gate, storeFor(gate.address, storage, user, { maxEvents, maxBytes }), { user, maxAgeMs });
}

/** @param {string} address @param {string} storage @param {string | undefined} user @param {import("./outbox-memory.js").Bounds} bounds */
function storeFor(address, storage, user, bounds) {
  if (storage === "memory") return createMemoryStore(bounds);
  if (storage !== "indexeddb") throw TypeError(`headgate: storage must be memory or indexeddb, not ${storage}`);
  // Whose entries these are: nobody else may send them.
  if (!user) throw TypeError("headgate: an outbox in IndexedDB needs the name of its user");
  if (!globalThis.indexedDB || !globalThis.navigator?.locks) throw TypeError("headgate: this page has no IndexedDB or no Web Locks (a secure context has)");
  return createIndexedDbStore(`${address} ${user}`, bounds);
}
