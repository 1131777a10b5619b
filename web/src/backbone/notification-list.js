/**
 * NotificationList: an inbox of headgate/inbox as a Backbone collection, for views that listen to `add`, `remove` and `change`.
 *
 * In: snapshots of the inbox. Out: its items as models, newest first; `unread` with the count of the whole inbox when it changes, and
 * `status` with the status when that does, and `alert` with each item that arrives and is not muted in pages. It keeps nothing of its own: actions are the inbox's (`list.inbox.markRead(list.at(0).id)`).
 *
 * @typedef {import("../stores/snapshot-store.js").Store<{ items: readonly any[], unread: number, status: string }> & { onAlert(listener: (item: any) => void): () => void }} Inbox
 */
import Backbone from "backbone";
import { AnyIdCollection, CID_PREFIX } from "./any-id-collection.js";

/** Not a field: a field is not there yet in `initialize`. @type {WeakMap<object, Inbox>} */
const inboxes = new WeakMap();

export class NotificationList extends AnyIdCollection {
  #before = { unread: 0, status: "loading" };
  #leave = () => {};

  /**
   * @param {any} models none: the inbox has them
   * @param {{ inbox: Inbox, [option: string]: any }} options `inbox`: of `createInbox`
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

  /** The inbox, with its actions. @returns {Inbox | undefined} none in `initialize` */
  get inbox() {
    return inboxes.get(this);
  }

  /** How many of the whole inbox are unread, listed or not. @returns {number} */
  get unread() {
    return this.inbox?.getSnapshot().unread ?? 0;
  }

  /** Of the inbox: `loading`, `behind`, `current` or `failed`. @returns {string} */
  get status() {
    return this.inbox?.getSnapshot().status ?? "loading";
  }

  /** Follow the inbox no more. What is listed stays. */
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

// On the prototype, as Backbone's own settings are: `extend` overrides it, and it is there during `super()`.
Object.assign(NotificationList.prototype, { model: Backbone.Model.extend({ cidPrefix: CID_PREFIX }) });
