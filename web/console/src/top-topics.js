/**
 * Topics by traffic: the events and bytes of each since counting began, for at most MOST topics (the Space-Saving algorithm of Metwally,
 * Agrawal and El Abbadi, 2005). Pure.
 *
 * In: events with their topics, each for `weight` of its kind where only the newest were seen. Out: the topics with most events. A newcomer to
 * a full table takes the place of the smallest, with its count as possible error: nothing that has more events than that is missing.
 *
 * @typedef {{ topic: string, events: number, bytes: number, error: number }} Row
 */

export const MOST = 500;

export class TopTopics {
  /** @type {Map<string, Row>} */
  #rows = new Map();
  events = 0;

  /** @param {string} topic @param {number} bytes @param {number} [weight] */
  add(topic, bytes, weight = 1) {
    this.events += weight;
    let row = this.#rows.get(topic);
    if (!row) {
      const error = this.#rows.size < MOST ? 0 : this.#dropSmallest();
      row = { topic, events: error, bytes: 0, error };
      this.#rows.set(topic, row);
    }
    row.events += weight;
    row.bytes += bytes * weight;
  }

  /** @param {number} number @returns {Row[]} */
  top(number) {
    return [...this.#rows.values()].sort((one, other) => other.events - one.events || (one.topic < other.topic ? -1 : 1)).slice(0, number);
  }

  #dropSmallest() {
    let smallest = /** @type {Row} */ (this.#rows.values().next().value);
    for (const row of this.#rows.values()) if (row.events < smallest.events) smallest = row;
    this.#rows.delete(smallest.topic);
    return smallest.events;
  }
}

/** Return a topic with the words that look like ids (those with a digit) as `*`: `orders.42.shipped` is `orders.*.shipped`. @param {string} topic */
export function grouped(topic) {
  return topic
    .split(".")
    .map((word) => (/\d/.test(word) ? "*" : word))
    .join(".");
}
