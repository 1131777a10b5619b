/**
 * The tail's buffer: the newest MOST entries, newest first. Pure.
 *
 * In: events and gaps as they come; a filter; a wish to pause. Out: the shown entries. While it is paused, the newest MOST entries are kept aside
 * and counted, so that the list does not move.
 *
 * @typedef {{ nth: number, kind: "event", topic: string, data: any, text: string, id: string | null, time: number, offset: number | null, replayed: boolean }} EventEntry
 * @typedef {{ nth: number, kind: "gap", text: string, time: number }} GapEntry
 * @typedef {EventEntry | GapEntry} Entry
 */

export const MOST = 300;
const LONGEST = 200;

export class TailBuffer {
  /** @type {Entry[]} */
  #entries = [];
  /** @type {Entry[]} */
  #aside = [];
  #nth = 0;
  #filter = "";
  paused = false;
  /** Entries since the list was cleared, and those of them that came while it is paused. */
  received = 0;
  waiting = 0;

  /** @param {string} topic @param {any} data @param {{ id: string | null, time: number, offset: number | null, replayed: boolean }} meta */
  event(topic, data, { id, time, offset, replayed }) {
    const text = JSON.stringify(data) ?? "";
    this.#put({ nth: ++this.#nth, kind: "event", topic, data, text: text.slice(0, LONGEST), id, time, offset, replayed });
  }

  /** @param {string} text @param {number} time */
  gap(text, time) {
    this.#put({ nth: ++this.#nth, kind: "gap", text, time });
  }

  /** Show entries whose topic or data contains this text, in any case. @param {string} text */
  set filter(text) {
    this.#filter = text.trim().toLowerCase();
  }

  /** Return the shown entries, newest first. @returns {Entry[]} */
  get shown() {
    const wanted = this.#filter;
    if (!wanted) return this.#entries;
    return this.#entries.filter((each) => each.kind === "event" && (each.topic.toLowerCase().includes(wanted) || each.text.toLowerCase().includes(wanted)));
  }

  pause() {
    this.paused = true;
  }

  resume() {
    this.paused = false;
    this.#entries = [...this.#aside, ...this.#entries].slice(0, MOST);
    this.#aside = [];
    this.waiting = 0;
  }

  clear() {
    this.#entries = [];
    this.#aside = [];
    this.received = this.waiting = 0;
  }

  /** @param {Entry} entry */
  #put(entry) {
    this.received++;
    const list = this.paused ? this.#aside : this.#entries;
    if (this.paused) this.waiting++;
    list.unshift(entry);
    if (list.length > MOST) list.pop();
  }
}
