/**
 * Items: the inbox of a user as this page knows it. Pure state, no I/O.
 *
 * In: pages of the inbox as the gateway answers them, events of the log in order, changes that this page has begun. Out: what to show: items, newest first, the
 * unread count of the whole inbox, and what the user has muted.
 *
 * The state of the log is the base, with pending changes on top of it. A change is removed when its event comes, when a newer answer includes it, or when
 * it has failed. Rules:
 * - a page shows the inbox after one event of the log, so an event at or below that offset does not change the count;
 * - each item has the offset of its state, so an older event does not change it;
 * - each change has the count. A new item adds one, and the page recognises it by its id;
 * - each change of what is muted has the whole list, so the newest one counts.
 *
 * @typedef {{ id: string, kind: string, data: any, time: number, at: number, read: boolean }} Item `time` in milliseconds since 1970
 * @typedef {"mail" | "page" | "push"} Channel
 * @typedef {{ readonly [pattern: string]: readonly Channel[] }} Mutes
 * @typedef {{ epoch: string, offset: number, unread: number, before: number | null, items: Item[], mutes: Mutes }} Page
 * @typedef {{ op: "read" | "unread" | "archive" | "read_all" | "mute" | "unmute", ids?: string[], up_to?: number, epoch?: string | null, pattern?: string, channels?: Channel[] }} Change as on the wire
 * @typedef {{ id: string, change: Change, receipt?: { epoch: string, offset: number } }} Pending `id` of the change's event
 * @typedef {{ topic: string, data: any, id: string | null, time: number, offset: number | null }} InboxEvent
 */

export class Items {
  /** @type {Map<string, Item & { version: number }>} */
  #items = new Map();
  /** @type {Pending[]} */
  #pending = [];
  #epoch = "";
  #offset = -1;
  #unread = 0;
  /** @type {Mutes} */
  #mutes = {};
  #mutesAt = -1;
  /** The item that the latest event has added. @type {Item | null} */
  added = null;
  /** Where the next page begins; null: there is none. @type {number | null} */
  before = null;

  get size() {
    return this.#items.size;
  }

  /** Take the newest page in place of all that was known. @param {Page} page */
  replace({ epoch, offset, unread, before, items, mutes }) {
    this.#items.clear();
    Object.assign(this, { before });
    [this.#epoch, this.#offset, this.#unread] = [epoch, offset, unread];
    [this.#mutes, this.#mutesAt] = [mutes, offset];
    this.#put(items, offset);
    this.#pending = this.#pending.filter(({ receipt }) => !receipt || (receipt.epoch === epoch && receipt.offset > offset));
  }

  /**
   * Append the page after the known items. Return false if it is another page.
   * @param {Page} page @param {number} asked where it should begin
   */
  append({ epoch, offset, before, items }, asked) {
    if (epoch !== this.#epoch || asked !== this.before) return false;
    this.before = before;
    this.#put(items, offset);
    return true;
  }

  /** @param {(Item & { archived?: boolean })[]} items @param {number} version */
  #put(items, version) {
    for (const { archived: _, ...item } of items) this.#items.set(item.id, { ...item, version });
  }

  /**
   * Take an event of the inbox. Return whether the items show all of it; false: an item comes back that this page does not have.
   * @param {InboxEvent} event
   */
  take({ topic, data, id, time, offset }) {
    this.added = null;
    if (offset === null) return true;
    const isNew = offset > this.#offset;
    const kind = topic.split(".").slice(3).join(".");
    this.#pending = this.#pending.filter((each) => each.id !== id || kind);
    let isWhole = true;
    if (kind) {
      const name = `${kind}/${id}`;
      if (isNew && !this.#items.has(name)) {
        this.added = { id: name, kind, data, time, at: offset, read: false };
        this.#items.set(name, { ...this.added, version: offset });
        this.#unread++;
      }
    } else {
      isWhole = this.#change(data, offset);
      if (isNew) this.#unread = data.unread;
      if (data.mutes && offset > this.#mutesAt) [this.#mutes, this.#mutesAt] = [data.mutes, offset];
    }
    if (isNew) this.#offset = offset;
    return isWhole || !isNew;
  }

  /** @param {any} change @param {number} offset */
  #change({ op, ids = [], up_to: upTo = Infinity, id, at }, offset) {
    if (op === "kept" && this.#items.get(id)?.at === at) this.#items.delete(id);
    if (op === "read_all") ids = [...this.#items.values()].filter((item) => item.at <= upTo).map((item) => item.id);
    let isWhole = true;
    for (const each of ids) {
      const item = this.#items.get(each);
      if (!item) isWhole &&= op !== "unread";
      else if (offset <= item.version) continue;
      else if (op === "archive" || op === "dropped") this.#items.delete(each);
      else this.#items.set(each, { ...item, read: op !== "unread", version: offset });
    }
    return isWhole;
  }

  /** Show a change before the log has it. @param {Pending} pending */
  begin(pending) {
    this.#pending.push(pending);
  }

  /** A change has failed. Undo it. @param {string} id of its event */
  fail(id) {
    this.#pending = this.#pending.filter((each) => each.id !== id);
  }

  /**
   * A change is in the log. Return whether the items show it or will show it, which is unknown in an epoch of which there was no page.
   * @param {string} id of its event @param {{ epoch: string, offset: number }} receipt
   */
  confirm(id, receipt) {
    const pending = this.#pending.find((each) => each.id === id);
    if (!pending) return true;
    const isOurs = receipt.epoch === this.#epoch;
    if (isOurs && receipt.offset <= this.#offset) this.fail(id);
    // In another epoch it is shown until a page has it.
    else pending.receipt = { epoch: receipt.epoch, offset: receipt.offset };
    return isOurs;
  }

  /** Return what to show. @returns {{ items: Item[], unread: number, mutes: Mutes }} */
  view() {
    /** @type {Map<string, Item>} */
    const shown = new Map([...this.#items.values()].sort((one, other) => other.at - one.at).map(({ version: _, ...item }) => [item.id, item]));
    const unreadIn = () => [...shown.values()].filter(({ read }) => !read).length;
    let elsewhere = Math.max(0, this.#unread - unreadIn());
    for (const { change } of this.#pending) {
      const { op, ids, up_to: upTo = Infinity, pattern } = change;
      if (pattern) continue;
      if (op === "read_all") elsewhere = 0;
      for (const id of ids ?? [...shown.keys()]) {
        const item = shown.get(id);
        if (!item || (op === "read_all" && item.at > upTo)) continue;
        if (op === "archive") shown.delete(id);
        else shown.set(id, { ...item, read: op !== "unread" });
      }
    }
    return { items: [...shown.values()], unread: elsewhere + unreadIn(), mutes: this.mutes };
  }

  /** The muted channels, with the pending changes. @returns {Mutes} */
  get mutes() {
    const mutes = new Map(Object.entries(this.#mutes));
    for (const { change: { pattern, channels } } of this.#pending) {
      if (pattern && channels) mutes.set(pattern, channels);
      else if (pattern) mutes.delete(pattern);
    }
    return Object.fromEntries(mutes);
  }
}
