/**
 * The pattern index finds the patterns that match a topic without testing each. Pure state, no I/O.
 *
 * It is a trie of words. The walk for a topic visits only the branches of its words, `*` and `#`, so a thousand patterns of which one matches cost little
 * more than one. Words are keys of Maps, so `__proto__` is a word like any other.
 *
 * @template T
 * @typedef {{ value?: T, next: Map<string, Node<T>> }} Node `value`: that of the pattern that ends here
 */

/** @template T */
export class PatternIndex {
  /** @type {Node<T>} */
  #root = { next: new Map() };

  /** @param {string[]} words of a new pattern @param {T} value */
  add(words, value) {
    let node = this.#root;
    for (const word of words) {
      const next = node.next.get(word) ?? { next: new Map() };
      node.next.set(word, next);
      node = next;
    }
    node.value = value;
  }

  /** @param {string[]} words of a pattern in the index */
  delete(words) {
    /** @param {Node<T>} node @param {number} at */
    const remove = (node, at) => {
      const next = node.next.get(words[at]);
      if (!next) return delete node.value;
      remove(next, at + 1);
      if (!next.next.size && !next.value) node.next.delete(words[at]);
    };
    remove(this.#root, 0);
  }

  /** Return the values of the patterns that match a topic, each once, in no order. @param {string} topic @returns {T[]} */
  match(topic) {
    if (!this.#root.next.size) return [];
    const words = topic.split(".");
    /** A set, because a pattern with several `#` can match in several ways. @type {Set<T>} */
    const values = new Set();
    /** @param {Node<T> | undefined} node @param {number} from first remaining word of the topic */
    const walk = (node, from) => {
      if (!node) return;
      const { value, next } = node;
      const rest = next.get("#");
      if (rest) for (let at = from; at <= words.length; at++) walk(rest, at);
      if (from < words.length) {
        walk(next.get(words[from]), from + 1);
        walk(next.get("*"), from + 1);
      } else if (value) values.add(value);
    };
    walk(this.#root, 0);
    return [...values];
  }
}

/** Return whether a topic matches a pattern. @param {string} pattern @param {string} topic */
export function meets(pattern, topic) {
  const index = new PatternIndex();
  index.add(pattern.split("."), true);
  return index.match(topic).length > 0;
}
