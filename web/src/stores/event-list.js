/**
 * EventList: the last events of a pattern, in log order, bounded. No I/O.
 *
 * An event is inserted by its offset, so a repaired event stands where it belongs, and one that comes again is skipped. An event without an offset, and the
 * events of another log, are appended.
 *
 * @import { HeadgateEvent } from "../gate.js"
 */
export class EventList {
  /** @type {HeadgateEvent[]} */
  #events = [];
  /** Index of the first event of the present log. */
  #begins = 0;

  /** @param {number} limit */
  constructor(limit) {
    this.limit = limit;
  }

  /** Return the events, oldest first, in a new list. */
  list() {
    return [...this.#events];
  }

  /** Add an event. @param {HeadgateEvent} event */
  put(event) {
    const place = this.#placeOf(event.offset);
    if (place < 0) return;
    this.#events.splice(place, 0, event);
    if (this.#events.length > this.limit) this.#drop(0);
  }

  /** The log has lost its events from an offset on. @param {number} from */
  rollBack(from) {
    for (let n = this.#events.length - 1; n >= this.#begins; n--) if ((this.#events[n].offset ?? -1) >= from) this.#drop(n);
  }

  /** Another log begins. */
  restart() {
    this.#begins = this.#events.length;
  }

  /** @param {number} nth */
  #drop(nth) {
    this.#events.splice(nth, 1);
    if (nth < this.#begins) this.#begins--;
  }

  /** Return the index where an offset belongs; -1: it is present. @param {number | null} offset */
  #placeOf(offset) {
    let place = this.#events.length;
    if (offset === null) return place;
    for (let n = place - 1; n >= this.#begins; n--) {
      const other = this.#events[n].offset;
      if (other === offset) return -1;
      if (other !== null && other < offset) break;
      if (other !== null) place = n;
    }
    return place;
  }
}
