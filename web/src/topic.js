/**
 * Topics and patterns: the grammar and matching. Pure functions, no I/O; mirrors gateway/headgate/topic.py.
 *
 * A topic is 1 to 8 words of `[A-Za-z0-9_-]` joined by dots, at most 255 bytes. A pattern may also use the AMQP wildcards
 * `*` (exactly one word) and `#` (zero or more words) as whole words, anywhere. `tests/golden/topics.json` holds the
 * vectors that both implementations must satisfy. Containment is the gateway's business and is not mirrored here.
 */
import { HeadgateError } from "./errors.js";

const TOPIC = /^(?=.{1,255}$)[\w-]+(\.[\w-]+){0,7}$/;
const PATTERN = /^(?=.{1,255}$)([\w-]+|[*#])(\.([\w-]+|[*#])){0,7}$/;

/**
 * Return `topic` unchanged if it is a valid topic.
 * @param {unknown} topic
 * @returns {string}
 * @throws {HeadgateError} `invalid_topic` {topic, reason}
 */
export function checkTopic(topic) {
  return check("topic", topic, TOPIC);
}

/**
 * Return `pattern` unchanged if it is a valid pattern (every topic is one).
 * @param {unknown} pattern
 * @returns {string}
 * @throws {HeadgateError} `invalid_pattern` {pattern, reason}
 */
export function checkPattern(pattern) {
  return check("pattern", pattern, PATTERN);
}

/**
 * Return whether a valid topic matches a valid pattern. A name that is no pattern matches itself only.
 * @param {string} pattern
 * @param {string} topic
 */
export function matches(pattern, topic) {
  return pattern === topic || wordsMatch(pattern.split("."), topic.split("."));
}

/**
 * Return whether the words of a topic match those of a pattern.
 *
 * Word by word, without regular expressions, so no name can break matching for the others. Eight words at most, so even the
 * worst pattern (`#.#.#.#.#.#.#.x`) is a few thousand steps.
 * @param {string[]} pattern
 * @param {string[]} topic
 * @param {number} [at] first word of the pattern that counts
 * @param {number} [from] first word of the topic that counts
 * @returns {boolean}
 */
export function wordsMatch(pattern, topic, at = 0, from = 0) {
  for (; at < pattern.length; at++, from++) {
    const word = pattern[at];
    if (word === "#") {
      for (let rest = from; rest <= topic.length; rest++) if (wordsMatch(pattern, topic, at + 1, rest)) return true;
      return false;
    }
    if (from >= topic.length || (word !== "*" && word !== topic[from])) return false;
  }
  return from === topic.length;
}

/** The characters are ASCII, so they are bytes. @param {string} kind @param {unknown} name @param {RegExp} grammar */
function check(kind, name, grammar) {
  if (typeof name === "string" && grammar.test(name)) return name;
  const reason = "not 1 to 8 words of A-Za-z0-9_- (pattern: or * or #), dots between, 255 bytes";
  throw new HeadgateError(`invalid_${kind}`, { [kind]: String(name).slice(0, 80), reason });
}
