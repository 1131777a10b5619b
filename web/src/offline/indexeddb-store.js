/**
 * The store of an outbox in IndexedDB. Entries outlive the page, and all tabs of the origin share them.
 *
 * The contract is in memory-store.js. A tab holds one Web Lock as long as it lives, by which other tabs know that it does, and another one while it is alone.
 * Notices go over a BroadcastChannel. Each queue (an address and a user) has its own entries, locks and channel.
 *
 * A page in the back/forward cache does not count as living. WebKit releases its locks, and its open transactions would block those of all other pages.
 *
 * @import { Entry } from "./entry.js"
 * @import { Bounds, Store } from "./memory-store.js"
 */
import { newId } from "../base/new-id.js";
import { HeadgateError } from "../index.js";
import { isKept, isUnderWay } from "./entry.js";
import { checkRoom, LEFT } from "./memory-store.js";

const DATABASE = "headgate-outbox";
const ENTRIES = "entries";
const TOTALS = "totals";
const QUEUE = "queue";

/**
 * Open the store. If the browser denies the page anything that the store needs, this fails before anything is kept.
 * @param {string} queue @param {Bounds} bounds @returns {Promise<Store>} rejected with the browser's error
 */
export async function openIndexedDbStore(queue, bounds) {
  const name = `headgate outbox ${queue}`;
  const tabs = `${name} tab `;
  /** Return the queue of an entry. Entries with a watched receipt have another one, because pages of an older version do not know their states. @param {Entry} entry */
  const queueOf = (entry) => (isKept(entry) ? `kept ${queue}` : queue);
  const tab = newId();
  /** @type {Promise<IDBDatabase> | undefined} */
  let opened;
  let isClosed = false;
  /** Counts how often the page has entered the back/forward cache. */
  let leaves = 0;
  /** That count when the page was last alone. */
  let alone = 0;
  /** Pending while the page is in the cache. */
  let present = Promise.resolve();
  let comeBack = () => {};
  /** Transactions under way, each with whether it was aborted because the page has left. @type {Map<IDBTransaction, boolean>} */
  const running = new Map();
  /** Withdraws the requests for a turn alone when the page leaves, which would otherwise get the lock in the cache and keep it. */
  let staying = new AbortController();
  const watching = new AbortController();

  /** Return the database. It is opened again after the browser has closed it (the user has cleared the site's data), or could not open it. */
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
   * Run one transaction, and return its result.
   * @template T @param {IDBTransactionMode} mode
   * @param {IDBTransactionDurability} durability `strict`: once the promise is resolved, the change survives a power failure
   * @param {(rows: IDBObjectStore, sums: IDBObjectStore) => Promise<T>} act called again if the page has left in between
   * @returns {Promise<T>}
   */
  async function run(mode, durability, act) {
    const opened = await database();
    await present;
    const transaction = opened.transaction([ENTRIES, TOTALS], mode, { durability });
    running.set(transaction, false);
    const ended = new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = () => reject(transaction.error);
    });
    ended.catch(() => {});
    try {
      const made = await act(transaction.objectStore(ENTRIES), transaction.objectStore(TOTALS)).catch((error) => {
        if (!transaction.error && !running.get(transaction)) transaction.abort();
        throw error;
      });
      await ended;
      return made;
    } catch (error) {
      if (running.get(transaction)) return run(mode, durability, act);
      throw error;
    } finally {
      running.delete(transaction);
    }
  }

  /** Replace an entry that still exists, or remove it without `next`. @param {IDBTransactionDurability} durability @param {Entry} entry @param {Entry} [next] */
  const replace = (durability, { key }, next) =>
    run("readwrite", durability, async (rows, sums) => {
      // Other pages may have changed it since this page left.
      if (alone !== leaves) throw LEFT;
      const row = await result(rows.get(key));
      if (!row) return;
      sums.put(heldAfter(await result(sums.get(queue)), row, next), queue);
      await (next ? result(rows.put({ ...next, queue: queueOf(next) })) : result(rows.delete(key)));
    });

  async function living() {
    const { held = [] } = await navigator.locks.query();
    return new Set(held.flatMap(({ name: lock = "" }) => (lock.startsWith(tabs) ? [lock.slice(tabs.length)] : [])));
  }

  /** Take the lock of a living tab, and return the function that releases it. @returns {Promise<() => void>} */
  const live = () =>
    new Promise((resolve, reject) => {
      navigator.locks.request(tabs + tab, () => new Promise((end) => resolve(() => end(undefined)))).catch(reject);
    });

  await database();
  // In a frame of another site, Firefox grants locks but does not list them.
  await living();
  /** Release the lock of a living tab. */
  let die = await live();
  const channel = new BroadcastChannel(name);
  /** @param {string} event @param {() => void} act */
  const watch = (event, act) => globalThis.addEventListener?.(event, (/** @type {any} */ { persisted }) => persisted && act(), watching);
  watch("pagehide", () => {
    leaves++;
    die();
    staying.abort();
    staying = new AbortController();
    present = new Promise((resolve) => {
      comeBack = resolve;
    });
    for (const transaction of running.keys()) {
      try {
        transaction.abort();
        running.set(transaction, true);
      } catch {
        // The transaction is complete, and ends without the page.
      }
    }
  });
  watch("pageshow", async () => {
    die = await live();
    comeBack();
  });

  return {
    tab,
    bounds,
    outlives: true,

    add: (entry) =>
      run("readwrite", "strict", async (rows, sums) => {
        const { events, bytes } = (await result(sums.get(queue))) ?? { events: 0, bytes: 0 };
        checkRoom(bounds, { events, bytes }, entry.bytes);
        sums.put({ events: events + 1, bytes: bytes + entry.bytes }, queue);
        await result(rows.add({ ...entry, queue }));
      }),

    entries: () => run("readonly", "default", async (rows) => (await Promise.all([`kept ${queue}`, queue].map((each) => result(rows.index(QUEUE).getAll(each))))).flat()),

    // The state of an entry about to be sent must survive. If any other step is lost, the fate of the entry is only in doubt.
    put: (entry) => replace(isUnderWay(entry) ? "strict" : "relaxed", entry, entry),

    remove: (entry) => replace("relaxed", entry),

    async alone(act) {
      const before = leaves;
      let acts = Promise.resolve(0);
      const begin = () => {
        alone = leaves;
        acts = act();
        return acts;
      };
      try {
        return await navigator.locks.request(name, { signal: staying.signal }, begin);
      } catch (error) {
        // The last step of `act` ends before another turn begins.
        await acts.catch(() => {});
        throw before === leaves ? error : LEFT;
      }
    },

    living,

    notify: (notice) => channel.postMessage(notice),

    listen(hear) {
      channel.onmessage = hear;
    },

    close() {
      channel.close();
      watching.abort();
      die();
      isClosed = true;
      opened?.then((database) => database.close(), () => {});
    },
  };
}

/** @param {() => void} gone called when the database can no longer be used @returns {Promise<IDBDatabase>} */
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

/**
 * Return what waits after an entry was replaced by another one, or removed.
 * @param {{ events: number, bytes: number }} held @param {Entry} row @param {Entry} [next]
 */
export function heldAfter({ events, bytes }, row, next) {
  const more = Number(Boolean(next && !isKept(next))) - Number(!isKept(row));
  return { events: events + more, bytes: bytes + more * row.bytes };
}

/** @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
function result(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
