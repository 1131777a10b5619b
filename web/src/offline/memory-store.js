/**
 * The contract of an outbox's store, and the store in memory, whose entries end with the page.
 *
 * Each store promises: entries come in the order of `add`, but those that are kept only for their receipts may come first. These do not count towards the
 * bounds; the outbox removes them beyond the same bounds. Once the promise of a change is resolved, the change survives the page if entries do. No two
 * pages run `alone` at the same time. An ended page is not among the `living`.
 *
 * @import { Entry } from "./entry.js"
 *
 * @typedef {object} Store
 * @property {string} tab the name of this page
 * @property {Bounds} bounds
 * @property {boolean} outlives whether entries outlive the page
 * @property {(entry: Omit<Entry, "key">) => Promise<void>} add rejected with `limit_reached`, or an error of the storage
 * @property {() => Promise<Entry[]>} entries in order
 * @property {(entry: Entry) => Promise<void>} put change one, if it exists
 * @property {(entry: Entry) => Promise<void>} remove
 * @property {(act: () => Promise<number>) => Promise<number>} alone
 * @property {() => Promise<Set<string>>} living
 * @property {(notice: "added" | "settled") => void} notify notify the other pages
 * @property {(hear: () => void) => void} listen listen to their notices
 * @property {() => void} close
 *
 * @typedef {{ maxEvents: number, maxBytes: number }} Bounds
 */
import { HeadgateError } from "../index.js";
import { isKept } from "./entry.js";

/** The error of an act or a change during which the page has left. Other pages have continued, so it begins again. */
export const LEFT = Error("the page was left");

/** @param {Bounds} bounds @returns {Store} */
export function createMemoryStore(bounds) {
  const tab = "this";
  /** @type {Map<number, Entry>} */
  const rows = new Map();
  let key = 0;

  return {
    tab,
    bounds,
    outlives: false,
    async add(entry) {
      const waiting = [...rows.values()].filter((row) => !isKept(row));
      checkRoom(bounds, { events: waiting.length, bytes: waiting.reduce((sum, { bytes }) => sum + bytes, 0) }, entry.bytes);
      rows.set(++key, { ...entry, key });
    },
    entries: async () => [...rows.values()],
    put: async (entry) => void (rows.has(entry.key) && rows.set(entry.key, entry)),
    remove: async ({ key }) => void rows.delete(key),
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
