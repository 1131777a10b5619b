/**
 * Topics and patterns: the grammar and matching. Pure functions, no I/O; mirrors gateway/headgate/events/topic.py.
 *
 * A topic is 1 to 8 words of `[A-Za-z0-9_-]` joined by dots, at most 255 bytes. A pattern may also use the AMQP wildcards
 * `*` (exactly one word) and `#` (zero or more words) as whole words, anywhere. `tests/golden/topics.json` holds the
 * vectors that both implementations must satisfy, and `users.json` those of users' names. Containment is the gateway's business and is not mirrored here.
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
 * Return whether a valid topic matches a valid pattern. Any other name matches itself only.
 * @param {string} pattern
 * @param {string} topic
 */
export function matches(pattern, topic) {
  // Any text is a name.
  check("pattern", pattern, ANY);
  check("topic", topic, ANY);
  return meets(pattern, topic);
}

/**
 * Return the word that stands for a user in topics: `ana` is `ana`, and `ana@example.org` is `ana__40example__2eorg`. Its rule is that of
 * `user_word` in Python: a byte of UTF-8 that a word may have stands for itself, any other is `__` and two hexadecimal digits.
 * @param {string} name
 * @returns {string}
 * @throws {HeadgateError} `invalid_request` {reason}
 */
export function userWord(name) {
  // Neither a control character nor half of a surrogate pair.
  if (typeof name === "string" && /^[^\p{Cc}\p{Cs}\p{Zl}\p{Zp}]+$/u.test(name)) {
    if (name === "me") return "__6de";
    // An underscore that would begin an escape is written as one, by a character that no name has.
    const word = encodeURIComponent(name.replace(/_(?=_[0-9a-f]{2})/g, "\u0001"))
      .replace(/%01/g, "%5f")
      .replace(/[.!~*'()]/g, (sign) => `%${sign.charCodeAt(0).toString(16)}`)
      .replace(/%(..)/g, (_, hex) => `__${hex.toLowerCase()}`);
    if (word.length <= MAX_USER) return word;
  }
  throw new HeadgateError("invalid_request", { reason: `user: no control characters, 1 to ${MAX_USER} bytes as a word of a topic` });
}

/** Return whether a pattern holds a wildcard, which is a whole word. @param {string} pattern */
export const hasWildcard = (pattern) => /(^|\.)[*#](\.|$)/.test(pattern);

/** The characters are ASCII, so they are bytes. @param {string} kind @param {unknown} name @param {RegExp} grammar */
function check(kind, name, grammar) {
  if (typeof name === "string" && grammar.test(name)) return name;
  throw new HeadgateError(`invalid_${kind}`, { [kind]: asText(name).slice(0, 80), reason: String(grammar) });
}
