/**
 * The timeline: the latest events, newest first, bounded: offset, topic, time; the gaps between them, and notes about this tab.
 *
 * In: `event`, `gap`, `note`, in a burst many per frame. Out: one change of the list per frame. A hidden tab draws no frames; the
 * same bound holds for the entries that wait there.
 */
import { element } from "../../design/element.js";
import { gapWords } from "./gap-words.js";

const MAX_ENTRIES = 40;

export class Timeline {
  /** @type {HTMLElement[]} newest last */
  #waiting = [];
  #scheduled = false;

  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
  }

  /** @param {{ topic: string, time: number, offset?: number }} event */
  event({ topic, time, offset }) {
    this.#add({}, offset === undefined ? "–" : String(offset), topic, time);
  }

  /** @param {{ from: number | null, to: number | null, count: number | null, reason: string }} gap */
  gap(gap) {
    this.#add({ className: "gap" }, "gap", gapWords(gap), Date.now());
  }

  /** Add a line about this tab. @param {string} text */
  note(text) {
    this.#add({}, "·", text, Date.now());
  }

  /** @param {{ className?: string }} look @param {string} offset @param {string} text @param {number} time_ms */
  #add(look, offset, text, time_ms) {
    const time = new Date(time_ms);
    const entry = element("li", look, element("span", { className: "offset", text: offset }), element("code", { text, title: text }));
    entry.append(element("time", { dateTime: Number.isNaN(time.getTime()) ? "" : time.toISOString(), text: clock(time) }));
    this.#waiting.push(entry);
    if (this.#waiting.length > MAX_ENTRIES) this.#waiting.shift();
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    this.#scheduled = false;
    this.root.prepend(...this.#waiting.reverse());
    this.#waiting = [];
    while (this.root.children.length > MAX_ENTRIES) this.root.lastElementChild?.remove();
  }
}

/** @param {Date} time */
function clock(time) {
  return time.toLocaleTimeString("en-GB");
}
