/**
 * NotificationList: an inbox of headgate/inbox as a Backbone collection, for views that listen to `add`, `remove` and `change`.
 *
 * In: snapshots of the inbox. Out: its items as models, newest first; `unread` with the count of the whole inbox when it changes; `status` with the status
 * when it changes; `alert` with each item that arrives and is not muted in pages. The inbox has the state and the actions
 * (`list.inbox.markRead(list.at(0).id)`).
 *
 * @typedef {import("../stores/snapshot-store.js").Store<{ items: readonly any[], unread: number, status: string }> & { onAlert(listener: (item: any) => void): () => void }} Inbox
 */
import Backbone from "backbone";
import { AnyIdCollection, CID_PREFIX } from "./any-id-collection.js";

/** Not a field, because fields do not exist yet in `initialize`. @type {WeakMap<object, Inbox>} */
const inboxes = new WeakMap();

export class NotificationList extends AnyIdCollection {
  #before = { unread: 0, status: "loading" };
  #leave = () => {};

  /**
   * @param {any} models none, because the inbox has them
   * @param {{ inbox: Inbox, [option: string]: any }} options `inbox`: from `createInbox`
   * @throws {TypeError} no inbox
   */
  constructor(models, options) {
    super(models, options);
    const { inbox } = options ?? {};
    if (typeof inbox?.getSnapshot !== "function") throw TypeError("NotificationList: inbox must be one that createInbox has made");
    inboxes.set(this, inbox);
    const ends = [inbox.subscribe(() => this.#show(inbox.getSnapshot())), inbox.onAlert((/** @type {any} */ item) => this.trigger("alert", item))];
    this.#leave = () => {
      for (const end of ends) end();
    };
    this.#show(inbox.getSnapshot());
  }

  /** The inbox, with its actions. @returns {Inbox | undefined} undefined in `initialize` */
  get inbox() {
    return inboxes.get(this);
  }

  /** The number of unread items in the whole inbox, listed or not. @returns {number} */
  get unread() {
    return this.inbox?.getSnapshot().unread ?? 0;
  }

  /** The status of the inbox: `loading`, `behind`, `current` or `failed`. @returns {string} */
  get status() {
    return this.inbox?.getSnapshot().status ?? "loading";
  }

  /** Stop following the inbox. The listed items stay. */
  unfollow() {
    this.#leave();
  }

  /** @param {{ items: readonly any[], unread: number, status: string }} snapshot */
  #show({ items, unread, status }) {
    const before = this.#before;
    this.#before = { unread, status };
    this.set(/** @type {any} */ (items));
    if (unread !== before.unread) this.trigger("unread", unread);
    if (status !== before.status) this.trigger("status", status);
  }
}

// On the prototype, like Backbone's own settings, so that `extend` overrides it and it exists during `super()`.
Object.assign(NotificationList.prototype, { model: Backbone.Model.extend({ cidPrefix: CID_PREFIX }) });
