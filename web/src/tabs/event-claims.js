/**
 * Event claims: decides which tab of an origin acts on an event that all of them get, such as to show a toast.
 *
 * In: a key. Out: whether this tab acts. Hidden tabs wait a moment, so that a visible tab comes first. The first tab gets the lock of the key and holds it
 * until it has claimed HELD others. It notifies the other tabs, which remember the key after this tab is closed.
 *
 * A key is claimed at most once among awake tabs. A tab that returns from the back/forward cache does not know the claims of tabs that have closed in
 * the meantime.
 *
 * @import { Platform } from "./group.js"
 */

/** The most locks that a tab holds. */
const HELD = 256;
/** The most keys that a tab remembers. */
const REMEMBERED = 1024;
/** How long a hidden tab waits for a visible one. */
const HIDDEN_MS = 500;

/** @param {string} name @param {Pick<Platform, "locks" | "BroadcastChannel">} platform */
export function createEventClaims(name, { locks, BroadcastChannel: Channel }) {
  /** @type {Set<string>} */
  const known = new Set();
  /** @type {(() => void)[]} */
  const held = [];
  const channel = new Channel(name);
  channel.onmessage = ({ data }) => remember(data);

  /** @param {string} key */
  function remember(key) {
    known.add(key);
    if (known.size > REMEMBERED) known.delete(/** @type {string} */ (known.values().next().value));
  }

  return {
    /** @param {string} key @returns {Promise<boolean>} whether this tab acts */
    async claim(key) {
      if (globalThis.document?.hidden) await new Promise((resolve) => setTimeout(resolve, HIDDEN_MS));
      if (known.has(key)) return false;
      return new Promise((resolve) => {
        locks
          .request(`${name}/${key}`, { ifAvailable: true }, (lock) => {
            const mine = Boolean(lock) && !known.has(key);
            resolve(mine);
            if (!mine) return;
            remember(key);
            channel.postMessage(key);
            if (held.length >= HELD) held.shift()?.();
            return new Promise((release) => held.push(() => release(undefined)));
          })
          // The browser denies locks to this page, for example because cookies are blocked, so it acts by itself.
          .catch(() => resolve(true));
      });
    },

    close() {
      channel.close();
      for (const release of held.splice(0)) release();
    },
  };
}
