/**
 * Topics and patterns: the grammar and matching. Pure functions, no I/O. It mirrors gateway/headgate/events/topic.py, without containment, which only the
 * gateway needs.
 *
 * A topic is 1 to 8 words of `[A-Za-z0-9_-]` joined by dots, at most 255 bytes. A pattern may also use the AMQP wildcards `*` (exactly one word) and `#` (zero
 * or more words) as whole words, anywhere. `tests/golden/topics.json` has the vectors for both implementations, and `users.json` those for users' names.
 */
import { asText } from "./as-text.js";
import { HeadgateError } from "./errors.js";
import { meets } from "./pattern-index.js";

const TOPIC = /^(?=.{1,255}$)[\w-]+(\.[\w-]+){0,7}$/;
const ANY = /^/;
/** `users.<word>.#` is a pattern. */
const MAX_USER = 247;
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
 * Return whether a topic matches a pattern. An invalid name matches only itself.
 * @param {string} pattern
 * @param {string} topic
 */
export function matches(pattern, topic) {
  // Any text is accepted.
  check("pattern", pattern, ANY);
  check("topic", topic, ANY);
  return meets(pattern, topic);
}

/**
 * Return the word that stands for a user in topics: `ana` for `ana`, and `ana__40example__2eorg` for `ana@example.org`. As in `user_word` of Python, a byte of
 * UTF-8 that a word may contain stands for itself, and any other becomes `__` and two hexadecimal digits.
 * @param {string} name
 * @returns {string}
 * @throws {HeadgateError} `invalid_request` {reason}
 */
export function userWord(name) {
  // No control characters and no lone surrogates.
  if (typeof name === "string" && /^[^\p{Cc}\p{Cs}\p{Zl}\p{Zp}]+$/u.test(name)) {
    if (name === "me") return "__6de";
    // An underscore that would begin an escape is escaped itself, first as a character that no name has.
    const word = encodeURIComponent(name.replace(/_(?=_[0-9a-f]{2})/g, "\u0001"))
      .replace(/%01/g, "%5f")
      .replace(/[.!~*'()]/g, (sign) => `%${sign.charCodeAt(0).toString(16)}`)
      .replace(/%(..)/g, (_, hex) => `__${hex.toLowerCase()}`);
    if (word.length <= MAX_USER) return word;
  }
  throw new HeadgateError("invalid_request", { reason: `user: no control characters, 1 to ${MAX_USER} bytes as a word of a topic` });
}

/** Return whether a pattern has a wildcard, which is a whole word. @param {string} pattern */
export const hasWildcard = (pattern) => /(^|\.)[*#](\.|$)/.test(pattern);

/** Check a name against its grammar, which allows only ASCII, so that characters are bytes. @param {string} kind @param {unknown} name @param {RegExp} grammar */
function check(kind, name, grammar) {
  if (typeof name === "string" && grammar.test(name)) return name;
  throw new HeadgateError(`invalid_${kind}`, { [kind]: asText(name).slice(0, 80), reason: String(grammar) });
}
