/**
 * The store of an outbox in IndexedDB: entries outlive the page, and all tabs of the origin share them.
 *
 * The contract is in memory-store.js. A tab holds a Web Lock for as long as it lives, which is how the others know, and another
 * one while it is alone. Notices go over a BroadcastChannel. Each queue (an address and a user) has its own entries, locks and channel.
 *
 * @import { Entry } from "./entry.js"
 * @import { Bounds, Store } from "./memory-store.js"
 */
import { newId } from "../base/new-id.js";
import { HeadgateError } from "../index.js";
import { isKept, isUnderWay } from "./entry.js";
import { checkRoom, heldAfter } from "./memory-store.js";

const DATABASE = "headgate-outbox";
const ENTRIES = "entries";
const TOTALS = "totals";
const QUEUE = "queue";

/**
 * Open the store. What the browser denies a page, it denies here, before anything is kept.
 * @param {string} queue @param {Bounds} bounds @returns {Promise<Store>} rejected with whatever the browser says
 */
export async function openIndexedDbStore(queue, bounds) {
  const name = `headgate outbox ${queue}`;
  const tabs = `${name} tab `;
  /** Entries with watched receipts have another name: pages of an older version do not know their states. @param {Entry} entry */
  const queueOf = (entry) => (isKept(entry) ? `kept ${queue}` : queue);
  const tab = newId();
  /** @type {Promise<IDBDatabase> | undefined} */
  let opened;
  let isClosed = false;

  /** Return the database. It is opened again when the browser has closed it (the user has cleared the site's data), or could not open it. */
  function database() {
    if (isClosed) return Promise.reject(new HeadgateError("closed"));
    if (opened) return opened;
    const mine = openDatabase(() => forget(mine));
    mine.catch(() => forget(mine));
    opened = mine;
    return mine;
  }

  /** @param {Promise<IDBDatabase>} gone */
  function forget(gone) {
    if (opened === gone) opened = undefined;
  }

  /**
   * Run one transaction.
   * @param {IDBTransactionDurability} durability `strict`: when the promise is resolved, it survives a power failure too
   * @param {(rows: IDBObjectStore, sums: IDBObjectStore) => Promise<unknown>} act
   */
  async function change(durability, act) {
    const transaction = (await database()).transaction([ENTRIES, TOTALS], "readwrite", { durability });
    const ended = new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = () => reject(transaction.error);
    });
    ended.catch(() => {});
    try {
      await act(transaction.objectStore(ENTRIES), transaction.objectStore(TOTALS));
    } catch (error) {
      if (!transaction.error) transaction.abort();
      throw error;
    }
    await ended;
  }

  /** Replace an entry if it is still there; without `next`, remove it. @param {IDBTransactionDurability} durability @param {Entry} entry @param {Entry} [next] */
  const replace = (durability, { key }, next) =>
    change(durability, async (rows, sums) => {
      const row = await result(rows.get(key));
      if (!row) return;
      sums.put(heldAfter(await result(sums.get(queue)), row, next), queue);
      await (next ? result(rows.put({ ...next, queue: queueOf(next) })) : result(rows.delete(key)));
    });

  async function living() {
    const { held = [] } = await navigator.locks.query();
    return new Set(held.flatMap(({ name: lock = "" }) => (lock.startsWith(tabs) ? [lock.slice(tabs.length)] : [])));
  }

  await database();
  // Firefox grants a frame of another site locks, and does not list them.
  await living();
  /** Give up the lock of a tab that lives. @type {() => void} */
  const die = await new Promise((resolve, reject) => {
    navigator.locks.request(tabs + tab, () => new Promise((end) => resolve(() => end(undefined)))).catch(reject);
  });
  const channel = new BroadcastChannel(name);

  return {
    tab,
    bounds,
    outlives: true,

    add: (entry) =>
      change("strict", async (rows, sums) => {
        const { events, bytes } = (await result(sums.get(queue))) ?? { events: 0, bytes: 0 };
        checkRoom(bounds, { events, bytes }, entry.bytes);
        sums.put({ events: events + 1, bytes: bytes + entry.bytes }, queue);
        await result(rows.add({ ...entry, queue }));
      }),

    async entries() {
      const rows = (await database()).transaction(ENTRIES).objectStore(ENTRIES).index(QUEUE);
      return (await Promise.all([`kept ${queue}`, queue].map((each) => result(rows.getAll(each))))).flat();
    },

    // The state of an entry about to be sent must survive; losing any other step only leaves a doubt.
    put: (entry) => replace(isUnderWay(entry) ? "strict" : "relaxed", entry, entry),

    remove: (entry) => replace("relaxed", entry),

    alone: async (act) => navigator.locks.request(name, act),

    living,

    notify: (notice) => channel.postMessage(notice),

    listen(hear) {
      channel.onmessage = hear;
    },

    close() {
      channel.close();
      die();
      isClosed = true;
      opened?.then((database) => database.close(), () => {});
    },
  };
}

/** @param {() => void} gone it can no longer be used @returns {Promise<IDBDatabase>} */
async function openDatabase(gone) {
  const request = indexedDB.open(DATABASE, 1);
  request.onupgradeneeded = () => {
    request.result.createObjectStore(ENTRIES, { keyPath: "key", autoIncrement: true }).createIndex(QUEUE, QUEUE);
    request.result.createObjectStore(TOTALS);
  };
  const database = await result(request);
  database.onclose = gone;
  database.onversionchange = () => {
    database.close();
    gone();
  };
  return database;
}

/** @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
function result(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
