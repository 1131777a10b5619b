/**
 * The store of an outbox in IndexedDB: entries outlive the page, and all tabs of the origin share them.
 *
 * The contract is in outbox-memory.js. A tab holds a Web Lock for as long as it lives, which is how the others know, and another
 * one while it is alone. Notices go over a BroadcastChannel. Each queue (an address and a user) has its own entries, locks and channel.
 *
 * @import { Entry } from "./outbox-entry.js"
 * @import { Bounds, Store } from "./outbox-memory.js"
 */
import { checkRoom } from "./outbox-memory.js";

const DATABASE = "headgate-outbox";
const ENTRIES = "entries";
const TOTALS = "totals";
const QUEUE = "queue";

/** @param {string} queue @param {Bounds} bounds @returns {Store} */
export function createIndexedDbStore(queue, bounds) {
  const name = `headgate outbox ${queue}`;
  const tabs = `${name} tab `;
  const tab = crypto.getRandomValues(new Uint32Array(4)).join("-");
  const channel = new BroadcastChannel(name);
  const opened = openDatabase();
  // Each use of it says so again.
  opened.catch(() => {});
  /** Give up the lock of a tab that lives. */
  let die = () => {};
  /** @type {Promise<void>} */
  const lives = new Promise((resolve) => {
    const hold = () => {
      resolve();
      return new Promise((/** @type {(value?: undefined) => void} */ end) => {
        die = end;
      });
    };
    void navigator.locks.request(tabs + tab, hold);
  });

  /**
   * Run one transaction. When the promise is resolved, all of it is on disk: an entry that was sent must be known as such also
   * after a power failure.
   * @param {(rows: IDBObjectStore, totals: { events: number, bytes: number }) => Promise<unknown>} act may change the totals
   */
  async function change(act) {
    // An entry of a tab that nobody knows to live would be told by another one.
    await lives;
    const transaction = (await opened).transaction([ENTRIES, TOTALS], "readwrite", { durability: "strict" });
    const ended = new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = () => reject(transaction.error);
    });
    ended.catch(() => {});
    try {
      const sums = transaction.objectStore(TOTALS);
      const totals = (await result(sums.get(queue))) ?? { events: 0, bytes: 0 };
      await act(transaction.objectStore(ENTRIES), totals);
      sums.put(totals, queue);
    } catch (error) {
      if (!transaction.error) transaction.abort();
      throw error;
    }
    await ended;
  }

  return {
    tab,
    outlives: true,

    add: (entry) =>
      change(async (rows, totals) => {
        checkRoom(bounds, totals, entry.bytes);
        totals.events++;
        totals.bytes += entry.bytes;
        await result(rows.add({ ...entry, queue }));
      }),

    async entries() {
      const rows = (await opened).transaction(ENTRIES).objectStore(ENTRIES);
      return result(rows.index(QUEUE).getAll(queue));
    },

    // It keeps the name of its queue: it was read with it.
    put: (entry) => change((rows) => result(rows.put(entry))),

    remove: (entry) =>
      change(async (rows, totals) => {
        if (!(await result(rows.getKey(entry.key)))) return;
        totals.events--;
        totals.bytes -= entry.bytes;
        await result(rows.delete(entry.key));
      }),

    alone: async (act) => navigator.locks.request(name, act),

    async living() {
      const { held = [] } = await navigator.locks.query();
      return new Set(held.flatMap(({ name: lock = "" }) => (lock.startsWith(tabs) ? [lock.slice(tabs.length)] : [])));
    },

    notify: (notice) => channel.postMessage(notice),

    listen(hear) {
      channel.onmessage = hear;
    },

    close() {
      channel.close();
      void lives.then(() => die());
      void opened.then((database) => database.close(), () => {});
    },
  };
}

/** @returns {Promise<IDBDatabase>} */
function openDatabase() {
  const request = indexedDB.open(DATABASE, 1);
  request.onupgradeneeded = () => {
    request.result.createObjectStore(ENTRIES, { keyPath: "key", autoIncrement: true }).createIndex(QUEUE, QUEUE);
    request.result.createObjectStore(TOTALS);
  };
  return result(request);
}

/** @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
function result(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
