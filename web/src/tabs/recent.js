/**
 * The latest messages of the gateway, for tabs slightly behind. Bounded in messages and characters. No I/O.
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
  #characters = 0;

  /** Forget everything; the following entries come after an offset. @param {number} floor */
  begin(floor) {
    this.floor = floor;
    this.#entries = [];
    this.#characters = 0;
  }

  /** @param {Entry} entry */
  put(entry) {
    this.#entries.push(entry);
    this.#characters += entry.text.length;
    while (this.#entries.length > MAX_ENTRIES || this.#characters > MAX_CHARACTERS) {
      const { offset, text } = /** @type {Entry} */ (this.#entries.shift());
      this.#characters -= text.length;
      this.floor = Math.max(this.floor, offset);
    }
  }

  /** Return the entries after an offset, in order. @param {number} offset */
  behind(offset) {
    return this.#entries.filter((entry) => entry.offset > offset);
  }
}
