/** The entry point `headgate/offline`: an outbox for publishes that wait for a connection. */
import { COUNT } from "../language/options.js";
import { Gate } from "../index.js";
import { openIndexedDbStore } from "./indexeddb-store.js";
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
 * Make an outbox for a gate. It closes with the gate.
 * @param {import("../gate.js").Gate} gate
 * @param {{ storage?: "memory" | "indexeddb", user?: string, maxEvents?: number, maxBytes?: number, maxAgeMs?: number }} [options]
 *   `storage`: `memory` (default) ends with the page, `indexeddb` needs `user`; a page that may not store anything keeps its outbox in memory, and the console
 *   reports that
 * @throws {TypeError} an option breaks its rule, or `user` is missing
 */
export function createOutbox(gate, options = {}) {
  const { storage, user, maxEvents, maxBytes, maxAgeMs } = Gate._optionsOf(gate, "createOutbox", OPTIONS, options);
  const bounds = { maxEvents, maxBytes };
  let opened;
  if (storage !== "memory") {
    // Pages of other users must not send these entries.
    Gate._check("createOutbox: user of IndexedDB", /./, user);
    opened = openIndexedDbStore(`${gate.address} ${user}`, bounds);
  }
  return runOutbox(gate, createMemoryStore(bounds), { user, maxAgeMs, opened });
}
