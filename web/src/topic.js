/**
 * Topics and patterns: the grammar and matching. Pure functions, no I/O; mirrors gateway/headgate/topic.py.
 *
 * A topic is 1 to 8 words of `[A-Za-z0-9_-]` joined by dots, at most 255 bytes. A pattern may also use the AMQP wildcards
 * `*` (exactly one word) and `#` (zero or more words) as whole words, anywhere. `tests/golden/topics.json` holds the
 * vectors that both implementations must satisfy. Containment is the gateway's business and is not mirrored here.
 */
import { HeadgateError } from "./errors.js";

export const MAX_TOPIC_BYTES = 255;
export const MAX_TOPIC_WORDS = 8;

const WORD = "[A-Za-z0-9_-]+";
const TOPIC = grammar(WORD);
const PATTERN = grammar(`(?:${WORD}|[*#])`);
const LENGTH = `joined by dots, at most ${MAX_TOPIC_BYTES} bytes`;
const RULE = `expected 1 to ${MAX_TOPIC_WORDS} words of letters, digits, _ and -, ${LENGTH}`;

/**
 * Return `topic` unchanged if it is a valid topic.
 * @param {unknown} topic
 * @returns {string}
 * @throws {HeadgateError} `invalid_topic` {topic, reason}
 */
export function checkTopic(topic) {
  return check("topic", topic, TOPIC, RULE);
}

/**
 * Return `pattern` unchanged if it is a valid pattern (every topic is one).
 * @param {unknown} pattern
 * @returns {string}
 * @throws {HeadgateError} `invalid_pattern` {pattern, reason}
 */
export function checkPattern(pattern) {
  return check("pattern", pattern, PATTERN, `${RULE}; * or # may stand for words`);
}

/**
 * Return whether a valid topic matches a valid pattern.
 * @param {string} pattern
 * @param {string} topic
 */
export function matches(pattern, topic) {
  return pattern === topic || matchesFrom(pattern.split("."), topic.split("."), 0, 0);
}

/**
 * Tries both lengths at each `#`. Eight words at most, so even the worst pattern (`#.#.#.#.#.#.#.x`) is a few thousand steps.
 * @param {string[]} tokens @param {string[]} words @param {number} token @param {number} word
 * @returns {boolean}
 */
function matchesFrom(tokens, words, token, word) {
  const now = tokens[token];
  const more = word < words.length;
  if (now === undefined) return !more;
  if (now === "#") return matchesFrom(tokens, words, token + 1, word) || (more && matchesFrom(tokens, words, token, word + 1));
  return more && (now === "*" || now === words[word]) && matchesFrom(tokens, words, token + 1, word + 1);
}

/** The characters are ASCII, so they are bytes. @param {string} word */
function grammar(word) {
  return new RegExp(`^(?=.{1,${MAX_TOPIC_BYTES}}$)${word}(?:\\.${word}){0,${MAX_TOPIC_WORDS - 1}}$`);
}

/** @param {string} kind @param {unknown} name @param {RegExp} valid @param {string} reason */
function check(kind, name, valid, reason) {
  if (typeof name === "string" && valid.test(name)) return name;
  const shown = String(typeof name === "string" ? name : typeof name).slice(0, 80);
  throw new HeadgateError(`invalid_${kind}`, `invalid ${kind} '${shown}': ${reason}`, { [kind]: shown, reason });
}
