/**
 * The notification centre: a bell with a count, and the list that it opens, with read and unread notifications.
 *
 * In: a NotificationList's `add`, `remove`, `change:read`, `unread`. Out: `read`, `readAll`, and `shown` for the notifications
 * that the user sees: the list is open and the page visible. The model bounds the list. The browser's popover opens and closes
 * it, also at Escape, and gives the focus back.
 */
import { element } from "../../design/element.js";

export class Centre {
  /** @type {Map<string, { item: HTMLElement, mark: HTMLButtonElement }>} by Backbone's cid: not every notification has an id */
  #items = new Map();

  /**
   * @param {{ panel: HTMLElement, bell: HTMLElement, badge: HTMLElement, title: HTMLElement, items: HTMLElement, readAll: HTMLElement, unread: HTMLElement }} parts
   * @param {any} list
   * @param {(topic: string, data: any) => { title: string, detail: string, status: string }} words
   * @param {{ opened: () => void, show: (order: string) => boolean }} page what it does when the list opens, and how it shows an order
   */
  constructor(parts, list, words, page) {
    this.parts = parts;
    this.page = page;
    this.list = list;
    this.words = words;
    list.on("add", (/** @type {any} */ notification) => this.#add(notification));
    list.on("remove", (/** @type {any} */ notification) => this.#remove(notification));
    list.on("change:read", (/** @type {any} */ notification) => this.#show(notification));
    list.on("unread", () => this.#count());
    parts.panel.addEventListener("toggle", () => {
      if (this.isOpen) page.opened();
      this.#shown();
    });
    document.addEventListener("visibilitychange", () => this.#shown());
    parts.readAll.addEventListener("click", () => {
      list.readAll();
      parts.title.focus();
    });
    this.#count();
  }

  /** Whether the list is open, so that everything new is seen in it. */
  get isOpen() {
    return this.parts.panel.matches(":popover-open");
  }

  /** @param {any} notification */
  #add(notification) {
    const { topic, data, time } = notification.attributes;
    const { title, detail, status } = this.words(topic, data);
    const when = new Date(time);
    const valid = !Number.isNaN(when.getTime());
    const mark = element("button", { type: "button", className: "icon", text: "✓", title: "Mark as read", aria: { label: `Mark as read: ${title}` } });
    mark.addEventListener("click", () => this.#read(notification));
    const said = element(
      "div",
      {},
      this.#heading(notification, title),
      element("p", { className: "detail", text: detail }),
      element("p", { className: "meta" }, element("code", { text: topic }), element("time", {
        dateTime: valid ? when.toISOString() : "",
        text: valid ? when.toLocaleTimeString("en-GB") : "",
      })),
    );
    const item = element("li", { className: "notification", data: status ? { status } : {} }, said, mark);
    this.#items.set(notification.cid, { item, mark });
    // One that comes from the log may be older than what is there.
    const newer = [...this.parts.items.children].filter((each) => Number(/** @type {HTMLElement} */ (each).dataset.time) > time);
    item.dataset.time = String(time);
    if (newer.length) newer[newer.length - 1].after(item);
    else this.parts.items.prepend(item);
    this.#show(notification);
    this.#shown();
  }

  /** The words of an order's event lead to the order. @param {any} notification @param {string} title */
  #heading(notification, title) {
    const [root, id] = notification.get("topic").split(".");
    if (root !== "orders" || !id) return element("strong", { text: title });
    const link = element("button", { type: "button", className: "to-order", text: title, title: `Go to order ${id}` });
    link.addEventListener("click", () => {
      notification.set("read", true);
      this.parts.panel.hidePopover();
      this.page.show(id);
    });
    return element("strong", {}, link);
  }

  /** Report the notifications that the user sees here, so that nobody mails them. */
  #shown() {
    if (document.visibilityState === "visible" && this.isOpen) this.list.shown(...this.list.models);
  }

  /** @param {any} notification */
  #remove({ cid }) {
    this.#items.get(cid)?.item.remove();
    this.#items.delete(cid);
  }

  /** @param {any} notification */
  #show(notification) {
    const entry = this.#items.get(notification.cid);
    if (!entry) return;
    const read = Boolean(notification.get("read"));
    entry.item.classList.toggle("is-read", read);
    entry.mark.hidden = read;
  }

  /** Mark as read, and move the focus to the next unread one. @param {any} notification */
  #read(notification) {
    const { item } = /** @type {{ item: HTMLElement }} */ (this.#items.get(notification.cid));
    notification.set("read", true);
    const marks = [...this.#items.values()].filter((each) => !each.mark.hidden);
    const below = marks.filter((each) => item.compareDocumentPosition(each.item) & Node.DOCUMENT_POSITION_FOLLOWING);
    // The page has the newest first, the map the oldest.
    (below.at(-1)?.mark ?? marks[0]?.mark ?? this.parts.title).focus();
  }

  #count() {
    const { unread } = this.list;
    const { bell, badge, readAll, unread: words } = this.parts;
    badge.hidden = !unread;
    badge.textContent = unread > 99 ? "99+" : String(unread);
    bell.setAttribute("aria-label", unread ? `Notifications, ${unread} unread` : "Notifications");
    words.textContent = unread ? `${unread} unread` : "All read";
    /** @type {HTMLButtonElement} */ (readAll).hidden = !unread;
  }
}
