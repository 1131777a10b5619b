/**
 * The latest messages from the gateway, for tabs that lag slightly. Bounded in messages and characters. No I/O.
 *
 * In: events and gaps in the order of the log, each with its offset. Out: those after an offset. Nothing above `floor` is missing.
 *
 * @typedef {{ offset: number, gap?: any, topic: string, text: string, meta?: any }} Entry a gap, else an event; `text`: its data as JSON
 */

const MAX_ENTRIES = 2000;
const MAX_CHARACTERS = 2 ** 21;

export class Recent {
  /** Everything above this offset is here. */
  floor = Infinity;
  /** @type {Entry[]} */
  #entries = [];
  /** Index of the first that counts: a shift for each would move all. */
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
