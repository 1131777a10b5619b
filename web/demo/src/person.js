/**
 * One person's pane: this person's gate, orders, bell, the others, and the state of the connection.
 *
 * In: the pane's elements. Out: the person's story (story.js), and the line that troubles cut. Tabs of one person share a connection
 * (`headgate/tabs`); a tab that is present in the room has one of its own, as docs/presence.md says, and tabs still share their claims.
 */
import { load } from "headgate";
import { connect } from "headgate/tabs";
import { element } from "../../design/element.js";
import { Bell } from "./bell.js";
import { Board } from "./board.js";
import { Line } from "./line.js";
import { changeOf } from "./order.js";
import { showPeople } from "./people.js";
import { Shop } from "./shop.js";
import { Story } from "./story.js";

/** Words for `gate.state.status`. @type {Record<string, string>} */
const WORDS = { live: "Live", catching_up: "Catching up…", resuming: "Catching up…", waiting: "Reconnecting…", refused: "Refused" };
const MAX_NOTICES = 3;
const NOTICE_MS = 6000;

export class Person {
  story = new Story();
  line = new Line();

  /** @param {HTMLElement} pane @param {Record<string, string>} names by user @param {import("./story.js").Sent} sent */
  constructor(pane, names, sent) {
    const { user = "", name = "" } = pane.dataset;
    this.name = name;
    const nameOf = (/** @type {string} */ by) => (Object.hasOwn(names, by) ? names[by] : by);
    const part = (/** @type {string} */ selector) => /** @type {HTMLElement} */ (pane.querySelector(selector));
    this.notices = part(".notices");
    this.shop = new Shop(user);
    // Only by WebSocket: HTTP gets through a cut line.
    this.gate = connect(location.origin, { user, token: () => this.shop.signIn(), transport: "websocket", WebSocket: this.line.WebSocket });
    const { gate, line, shop, story } = this;
    const board = new Board(part(".board"), (id, status) => this.#tried(`Order ${id} was not moved`, shop.send("PUT", `/demo/orders/${encodeURIComponent(id)}`, { status })), nameOf);
    load(/** @type {any} */ (gate), "orders.*.*", () => shop.orders(), {
      reset: (/** @type {import("./order.js").Order[]} */ orders) => board.reset(orders),
      apply: (data, { topic }) => board.apply(changeOf(topic, data)),
      changed: ({ status, error }) => {
        if (status === "failed") console.error("the orders could not be loaded", error);
      },
    });
    part("[data-new-order]").addEventListener("click", () => this.#tried("No order was created", shop.send("POST", "/demo/orders")));
    this.bell = new Bell(pane, gate, nameOf, (title, detail) => this.notify(title, detail));
    showPeople(gate, user, part(".board"), part(".peers"), nameOf);

    gate.on("all", (/** @type {string} */ event, /** @type {any} */ _data, /** @type {any} */ details) => {
      if (!event.startsWith("orders.") || !details) return; // all of them are for both
      story.take(details, performance.now());
      sent.take(details, performance.now(), Date.now());
    });
    gate.on("connection:down", () => story.down(performance.now()));
    gate.on("connection:up", ({ offset }) => story.up(performance.now(), offset));
    gate.on("delivery:gap", (gap) => story.gap(gap, performance.now()));
    const pill = part(".pill");
    const show = () => {
      const { status, bus } = gate.state;
      pill.textContent = line.isCut ? "Cut on purpose" : status === "live" && bus === "down" ? "Without Redis" : (WORDS[status] ?? "Connecting…");
      pill.dataset.status = line.isCut ? "waiting" : status;
    };
    line.changed = show;
    gate.on("state:change", show);
    gate.on("connection:refused", (/** @type {Error} */ { message }, /** @type {{ delayMs: number | null }} */ { delayMs }) => {
      if (delayMs !== null) return; // it tries again by itself
      const again = element("button", { type: "button", className: "button", text: "Try again" });
      const notice = this.notify("The gateway does not let this page in", message, again);
      again.addEventListener("click", () => {
        notice.remove();
        gate.open();
      });
    });
  }

  /** Show a notice for some seconds, or with `more` until it is dismissed. @param {string} title @param {string} detail @param {HTMLElement} [more] */
  notify(title, detail, more) {
    const close = element("button", { type: "button", className: "icon", text: "×", aria: { label: `Dismiss: ${title}` } });
    const notice = element("div", { className: "notice" }, element("p", {}, element("strong", { text: title }), element("span", { className: "hint", text: detail })), ...(more ? [more] : []), close);
    close.addEventListener("click", () => notice.remove());
    this.notices.append(notice);
    while (this.notices.childElementCount > MAX_NOTICES) this.notices.firstElementChild?.remove();
    // Not under a pointer or focus that is about to use it.
    const expire = () => (notice.matches(":hover, :focus-within") ? setTimeout(expire, NOTICE_MS) : notice.remove());
    if (!more) setTimeout(expire, NOTICE_MS);
    return notice;
  }

  /** Tell the user why something failed. @param {string} title @param {Promise<unknown>} work */
  #tried(title, work) {
    work.catch((/** @type {Error} */ { message }) => this.notify(title, message));
  }
}
