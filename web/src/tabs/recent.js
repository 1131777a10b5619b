/**
 * The latest messages of the gateway, for tabs that are slightly behind. Bounded in messages and characters. No I/O.
 *
 * In: events and gaps in the order of the log, each with its offset. Out: those after an offset. Nothing above `floor` is missing.
 *
 * @typedef {{ offset: number, gap?: any, topic: string, text: string, meta?: any }} Entry a gap or an event, with its data as JSON in `text`
 */

const MAX_ENTRIES = 2000;
const MAX_CHARACTERS = 2 ** 21;

export class Recent {
  /** The offset above which nothing is missing. */
  floor = Infinity;
  /** @type {Entry[]} */
  #entries = [];
  /** Index of the first entry that counts. A shift for each entry would move all others. */
  #first = 0;
  #characters = 0;

  /** Forget everything; the following entries come after an offset. @param {number} floor */
  begin(floor) {
    this.floor = floor;
    this.#entries = [];
    this.#first = this.#characters = 0;
  }

  /** @param {Entry} entry */
  put(entry) {
    this.#entries.push(entry);
    this.#characters += entry.text.length;
    while (this.#entries.length - this.#first > MAX_ENTRIES || this.#characters > MAX_CHARACTERS) {
      const { offset, text } = this.#entries[this.#first];
      this.#first++;
      this.#characters -= text.length;
      this.floor = Math.max(this.floor, offset);
    }
    if (this.#first > MAX_ENTRIES) {
      this.#entries = this.#entries.slice(this.#first);
      this.#first = 0;
    }
  }

  /** Return the entries after an offset, in order. @param {number} offset */
  behind(offset) {
    return this.#entries.slice(this.#first).filter((entry) => entry.offset > offset);
  }
}
