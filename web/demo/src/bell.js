/**
 * The bell of one pane: the user's inbox (`headgate/inbox`), the same in every tab and on every device, and after a restart.
 *
 * In: the inbox, the user's reading. Out: the list, the count, and a toast for an item that has come since, in one tab (`gate.tabs.claim`). Text of
 * events is set as text.
 */
import { createInbox } from "headgate/inbox";
import { element } from "../../design/element.js";

/** @param {any} data @param {string} kind @param {(user: string) => string} nameOf */
export function wordsOf(kind, data, nameOf) {
  const [, verb = ""] = kind.split(".");
  const [order, customer, by] = ["order", "customer", "by"].map((name) => (typeof data?.[name] === "string" ? data[name].slice(0, 140) : ""));
  if (order) return { title: `Order ${order} ${verb === "failed" ? "failed" : `was ${verb}`}`, detail: [customer, by && `by ${nameOf(by)}`].filter(Boolean).join(" · ") };
  return { title: kind, detail: (typeof data === "string" ? data : (JSON.stringify(data) ?? "")).slice(0, 140) };
}

export class Bell {
  /** @type {Set<string> | undefined} ids of the items that were there before */
  #known;

  /** @param {HTMLElement} pane @param {any} gate @param {(user: string) => string} nameOf @param {(title: string, detail: string) => void} toast */
  constructor(pane, gate, nameOf, toast) {
    const part = (/** @type {string} */ selector) => /** @type {HTMLElement} */ (pane.querySelector(selector));
    this.parts = { bell: part(".bell"), badge: part(".badge"), panel: part(".inbox"), items: part(".items"), readAll: part(".read-all") };
    this.nameOf = nameOf;
    this.toast = toast;
    this.gate = gate;
    this.inbox = createInbox(gate);
    this.label = this.parts.bell.getAttribute("aria-label");
    this.inbox.subscribe(() => this.#draw());
    const { panel, bell, readAll } = this.parts;
    readAll.addEventListener("click", () => void this.#act(this.inbox.markAllRead()));
    panel.addEventListener("toggle", () => {
      const { bottom, right } = bell.getBoundingClientRect();
      panel.style.top = `${Math.min(bottom + 6, innerHeight - panel.offsetHeight - 8)}px`;
      panel.style.left = `${Math.max(8, right - panel.offsetWidth)}px`;
    });
    this.#draw();
  }

  /** Show new items since the inbox was read, in one of this user's tabs. @param {readonly import("headgate/inbox").InboxItem[]} items */
  async #announce(items) {
    const fresh = this.#known ? items.filter(({ id, read }) => !read && !this.#known?.has(id)) : [];
    this.#known = new Set(items.map(({ id }) => id));
    for (const { id, kind, data, time } of fresh.reverse()) {
      if (this.parts.panel.matches(":popover-open") || !(await this.gate.tabs.claim({ id, topic: kind, time }))) continue;
      const { title, detail } = wordsOf(kind, data, this.nameOf);
      this.toast(title, detail);
    }
  }

  #draw() {
    const { items, unread, status } = this.inbox.getSnapshot();
    if (status === "current") {
      this.parts.panel.removeAttribute("aria-busy");
      void this.#announce(items);
    }
    const { bell, badge, readAll } = this.parts;
    badge.textContent = String(unread);
    badge.hidden = readAll.hidden = !unread;
    bell.setAttribute("aria-label", unread ? `${this.label}, ${unread} unread` : `${this.label}`);
    const focused = this.parts.items.contains(document.activeElement);
    this.parts.items.replaceChildren(...items.map((item) => this.#row(item)));
    if (!items.length) this.parts.items.append(element("li", { className: "hint", text: "Nothing yet. Ship or fail an order on the other side." }));
    if (focused) (this.parts.items.querySelector("button") ?? this.parts.items).focus();
  }

  /** @param {import("headgate/inbox").InboxItem} item */
  #row({ id, kind, data, read }) {
    const { title, detail } = wordsOf(kind, data, this.nameOf);
    const text = element("p", {}, element("strong", { text: title }), element("span", { className: "hint", text: detail }));
    const row = element("li", { className: "item", data: { read: read ? "yes" : "no" } }, text);
    if (read) return row;
    const mark = element("button", { type: "button", className: "icon", text: "✓", aria: { label: `Mark as read: ${title}` } });
    mark.addEventListener("click", () => void this.#act(this.inbox.markRead(id)));
    row.append(mark);
    return row;
  }

  /** The inbox undoes a refused action. Show the user the reason. @param {Promise<void>} action */
  async #act(action) {
    await action.catch((/** @type {Error} */ { message }) => this.toast("Not marked", message));
  }
}
