/**
 * What a user has read: the centre is filled from the log after a reload, and must not call everything in it new.
 *
 * In: the notifications of a list, and a storage, which may hold anything and may throw. Out: the read state of those that come from
 * the log. A user who was never here has read all that was before. Each user has a memory of their own, as both share a browser.
 *
 * @typedef {{ untilMs: number, unread: string[] }} Memory everything up to a time was read, but for these
 */

/** As many as the centre holds. */
const MAX_UNREAD = 100;

export class ReadMemory {
  #key;
  #storage;
  #memory;

  /** @param {string} user @param {() => Pick<Storage, "getItem" | "setItem">} storage @param {number} nowMs */
  constructor(user, storage, nowMs) {
    this.#key = `headgate-demo read ${user}`;
    this.#storage = storage;
    this.#memory = this.#stored() ?? { untilMs: nowMs, unread: [] };
  }

  /** Return whether a notification was read before this page opened. @param {{ id: string | null, time: number }} event */
  has({ id, time }) {
    return time <= this.#memory.untilMs && !(id !== null && this.#memory.unread.includes(id));
  }

  /** Keep what is read now. @param {{ id?: string, time: number, read: boolean }[]} notifications of the list, newest first */
  keep(notifications) {
    const newest = Math.max(this.#memory.untilMs, ...notifications.map(({ time }) => time).filter(Number.isFinite));
    const unread = notifications.filter(({ read, id }) => !read && id !== undefined).map(({ id }) => /** @type {string} */ (id));
    try {
      this.#storage().setItem(this.#key, JSON.stringify({ untilMs: newest, unread: unread.slice(0, MAX_UNREAD) }));
    } catch {
      // Storage may be full or forbidden; then a reload has read everything.
    }
  }

  /** @returns {Memory | null} */
  #stored() {
    try {
      const { untilMs, unread } = JSON.parse(this.#storage().getItem(this.#key) ?? "null");
      if (!Number.isFinite(untilMs) || !Array.isArray(unread)) return null;
      return { untilMs, unread: unread.filter((id) => typeof id === "string").slice(0, MAX_UNREAD) };
    } catch {
      return null;
    }
  }
}
