/**
 * Event claims: lets one tab of an origin act on an event that all of them get, such as to show a toast.
 *
 * In: a key. Out: whether this tab is the one. A visible tab goes first; hidden ones wait a moment, so that they only get what no
 * visible tab has claimed. The first gets the key's lock, which it holds until it has claimed HELD others, and notifies the rest, which
 * remember it after the tab is closed.
 *
 * A key is claimed at most once among tabs that are awake. One that comes out of the back/forward cache has not heard the claims
 * of tabs that have closed since.
 *
 * @import { Platform } from "./group.js"
 */

/** Claims that a tab holds, and that each remembers. */
const HELD = 256;
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
    /** @param {string} key @returns {Promise<boolean>} whether this tab is the one */
    async claim(key) {
      if (globalThis.document?.hidden) await new Promise((resolve) => setTimeout(resolve, HIDDEN_MS));
      if (known.has(key)) return false;
      return new Promise((resolve, reject) => {
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
          .catch(reject);
      });
    },

    close() {
      channel.close();
      for (const release of held.splice(0)) release();
    },
  };
}
