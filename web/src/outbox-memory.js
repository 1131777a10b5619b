/**
 * The store of an outbox, and the one in memory: entries are gone with the page.
 *
 * Promises of each store: entries come in the order of `add`. A change is kept, whatever becomes of the page, when its promise is
 * resolved. No two pages run `alone` at the same time. A page that has ended is not among the `living`.
 *
 * @import { Entry } from "./outbox-entry.js"
 *
 * @typedef {object} Store
 * @property {string} tab the name of this page
 * @property {boolean} outlives whether entries outlive the page
 * @property {(entry: Omit<Entry, "key">) => Promise<void>} add rejected with `limit_reached`, and whatever the storage says
 * @property {() => Promise<Entry[]>} entries in order
 * @property {(entry: Entry) => Promise<void>} put change one, if it is there
 * @property {(entry: Entry) => Promise<void>} remove
 * @property {(act: () => Promise<number>) => Promise<number>} alone
 * @property {() => Promise<Set<string>>} living
 * @property {(notice: "added" | "settled") => void} notify tell the other pages
 * @property {(hear: () => void) => void} listen to the others' notices
 * @property {() => void} close
 *
 * @typedef {{ maxEvents: number, maxBytes: number }} Bounds
 */
import { HeadgateError } from "./index.js";

/** @param {Bounds} bounds @returns {Store} */
export function createMemoryStore(bounds) {
  const tab = "this";
  /** @type {Map<number, Entry>} */
  const rows = new Map();
  let key = 0;
  let bytes = 0;
  return {
    tab,
    outlives: false,
    async add(entry) {
      checkRoom(bounds, { events: rows.size, bytes }, entry.bytes);
      bytes += entry.bytes;
      rows.set(++key, { ...entry, key });
    },
    entries: async () => [...rows.values()],
    async put(entry) {
      if (rows.has(entry.key)) rows.set(entry.key, entry);
    },
    async remove(entry) {
      if (rows.delete(entry.key)) bytes -= entry.bytes;
    },
    alone: (act) => act(),
    living: async () => new Set([tab]),
    notify() {},
    listen() {},
    close() {},
  };
}

/**
 * Refuse an entry for which there is no room.
 * @param {Bounds} bounds @param {{ events: number, bytes: number }} held @param {number} bytes
 * @throws {HeadgateError} `limit_reached`
 */
export function checkRoom({ maxEvents, maxBytes }, held, bytes) {
  const refuse = (/** @type {string} */ name, /** @type {number} */ limit) => {
    throw new HeadgateError("limit_reached", { name, limit, where: "browser" }, true);
  };
  if (held.events >= maxEvents) refuse("outbox_events", maxEvents);
  if (held.bytes + bytes > maxBytes) refuse("outbox_bytes", maxBytes);
}
