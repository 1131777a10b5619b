/**
 * One person's pane: a gate of this person's own, and what it shows: orders, bell, others, the state of the connection.
 *
 * In: the pane's elements. Out: the person's story (story.js), and the line that troubles cut. Tabs of one person share a connection
 * (`headgate/tabs`); a tab that is present in the room has one of its own, as docs/presence.md says, and tabs still share their claims.
 *
 * @import { Order } from "./order.js"
 */
import { load } from "headgate";
import { connect } from "headgate/tabs";
import { element } from "../../design/element.js";
import { Bell } from "./bell.js";
import { Board } from "./board.js";
import { Line } from "./line.js";
import { Orders } from "./orders.js";
import { showPeople } from "./people.js";
import { Shop } from "./shop.js";
import { Story } from "./story.js";

/** Words for `gate.state.status`. @type {Record<string, string>} */
const WORDS = { live: "Live", catching_up: "Catching up…", resuming: "Catching up…", waiting: "Reconnecting…", refused: "Refused" };
const MAX_NOTICES = 3;
const NOTICE_MS = 20_000;
const TOAST_MS = 6000;

export class Person {
  story = new Story();
  line = new Line();

  /**
   * @param {HTMLElement} pane @param {string} user
   * @param {{ names: Record<string, string>, noteLength: number, sent: import("./story.js").Sent }} page
   */
  constructor(pane, user, { names, noteLength, sent }) {
    this.user = user;
    this.name = pane.dataset.name ?? user;
    const nameOf = (/** @type {string} */ by) => (Object.hasOwn(names, by) ? names[by] : by || "someone");
    const part = (/** @type {string} */ selector) => /** @type {HTMLElement} */ (pane.querySelector(selector));
    this.shop = new Shop(user);
    // Only by WebSocket: HTTP gets through a line that is cut.
    this.gate = connect(location.origin, { user, token: () => this.shop.signIn(), transport: "websocket", WebSocket: this.line.WebSocket });
    const { gate, story } = this;
    this.notices = part(".notices");
    const root = part(".board");
    const board = new Board(
      root,
      {
        move: (id, status) => void this.#move(id, status),
        note: (id, note, seen) => this.#note(id, note, seen, nameOf),
        remove: (id) => void this.#remove(id, (gone) => board.focus(gone)),
      },
      { nameOf, noteLength },
    );
    this.orders = new Orders(this.shop, (pattern, fetch, options) => load(/** @type {any} */ (gate), pattern, fetch, options), {
      changed: (order) => board.show(order),
      removed: (id) => board.remove(id),
      loaded: () => root.removeAttribute("aria-busy"),
    });
    part("[data-new-order]").addEventListener("click", () => void this.#tried("No order was created", this.orders.create()));
    this.bell = new Bell(pane, gate, { nameOf, toast: (title, detail) => this.notify(title, detail), focus: (id) => board.focus(id) });
    showPeople(gate, user, root, part(".peers"), nameOf);

    gate.on("all", (/** @type {string} */ name, /** @type {any} */ _data, /** @type {any} */ event) => {
      if (name.includes(":") || !event) return;
      story.take(event, performance.now());
      sent.take(event, performance.now(), Date.now());
    });
    gate.on("connection:down", () => story.down(performance.now()));
    gate.on("connection:up", ({ offset }) => story.up(performance.now(), offset));
    gate.on("delivery:gap", (gap) => story.gap(gap, performance.now()));
    const pill = part(".pill");
    const show = () => {
      const { status, bus } = gate.state;
      pill.textContent = this.line.isCut ? "Cut on purpose" : status === "live" && bus === "down" ? "Without Redis" : (WORDS[status] ?? "Connecting…");
      pill.dataset.status = this.line.isCut ? "waiting" : status;
    };
    gate.on("state:change", show);
    gate.on("connection:refused", (/** @type {Error} */ { message }, /** @type {{ delayMs: number | null }} */ { delayMs }) => {
      if (delayMs !== null) return; // it tries again by itself
      const again = element("button", { type: "button", className: "button", text: "Try again" });
      const notice = this.notify("The gateway does not let this page in", message, again, 0);
      again.addEventListener("click", () => {
        notice.remove();
        gate.open();
      });
    });
    this.line.changed = show;
  }

  /** Show a notice for some seconds. @param {string} title @param {string} detail @param {HTMLElement} [more] @param {number} [forMs] 0: until it is dismissed */
  notify(title, detail, more, forMs = TOAST_MS) {
    const close = element("button", { type: "button", className: "icon", text: "×", aria: { label: `Dismiss: ${title}` } });
    const notice = element("div", { className: "notice" }, element("p", {}, element("strong", { text: title }), element("span", { className: "hint", text: detail })), ...(more ? [more] : []), close);
    close.addEventListener("click", () => notice.remove());
    this.notices.append(notice);
    while (this.notices.childElementCount > MAX_NOTICES) this.notices.firstElementChild?.remove();
    // Not under the pointer or the focus of someone who is about to use it.
    const expire = () => (notice.matches(":hover, :focus-within") ? setTimeout(expire, forMs) : notice.remove());
    if (forMs) setTimeout(expire, forMs);
    return notice;
  }

  /** @param {string} id @param {string} status */
  async #move(id, status) {
    const seen = this.orders.get(id)?.status;
    if (seen === undefined || seen === status) return;
    const theirs = await this.#tried(`Order ${id} was not moved`, this.orders.change(id, "status", status, seen));
    if (theirs) this.notify(`Order ${id} is ${theirs.status} already`, "Someone else moved it first.");
  }

  /** @param {string} id @param {string} note @param {string} seen @param {(by: string) => string} nameOf @returns {Promise<string | undefined>} */
  async #note(id, note, seen, nameOf) {
    try {
      const theirs = await this.orders.change(id, "note", note, seen);
      return theirs && `${nameOf(theirs.by)} wrote “${theirs.note}” meanwhile. Enter: keep yours. Esc: take theirs.`;
    } catch (error) {
      return `Not saved: ${/** @type {Error} */ (error).message}`;
    }
  }

  /** @param {string} id @param {(id: string) => void} back */
  async #remove(id, back) {
    const gone = await this.#tried(`Order ${id} was not deleted`, this.orders.remove(id));
    if (!gone) return;
    const undo = element("button", { type: "button", className: "button", text: "Undo", aria: { label: `Undo: restore order ${id}` } });
    const notice = this.notify(`Deleted order ${id}`, gone.customer, undo, NOTICE_MS);
    undo.addEventListener("click", async () => {
      notice.remove();
      const theirs = await this.#tried(`Order ${id} was not restored`, this.orders.restore(gone));
      if (theirs) this.notify(`Order ${id} is back already`, "Someone else restored it first.");
      else back(id);
    });
  }

  /** @template Result @param {string} title @param {Promise<Result>} work @returns {Promise<Result | undefined>} undefined: it failed, and the user is told */
  async #tried(title, work) {
    try {
      return await work;
    } catch (error) {
      this.notify(title, /** @type {Error} */ (error).message);
      return undefined;
    }
  }
}
