/**
 * Options: one table for each call that takes some, with the rule and the default of every option.
 *
 * In: the given options. Out: the options with their defaults, or a TypeError that names the option, its rule and the value. A name that the table does not
 * have is ignored, and a development build reports it (explain.js).
 *
 * A rule is the least and the most for a number (with `true`: a whole number), a list of words, a pattern for a text, the allowed results of `typeof` or
 * `array` ("": any), TEXTS, OBJECTS, POSITION, or a dot and a method that the object must have. The parts of a `since` are checked too.
 *
 * @typedef {[least: number, most: number, isWhole?: boolean] | string[] | RegExp | string} Rule
 * @typedef {Record<string, [rule: Rule, fallback?: any]>} Table
 */
import { MAX_DELAY_MS } from "../base/timer.js";
import { asText } from "./as-text.js";
import { reportUnknown, wordsOf } from "./explain.js";
import { OVERFLOW } from "./protocol.js";

/** @type {Rule} */
const TIME_MS = [1, MAX_DELAY_MS];
/** Messages, events or items that may be held. @type {Rule} */
export const COUNT = [1, 1_000_000, true];
/** @type {Rule} */
const OFFSET = [0, 2 ** 53 - 1, true];
/** A position {epoch, offset}, or none: null, or the two nulls of a gate that was never up. */
export const POSITION = "position";
/** A list of texts. */
export const TEXTS = "texts";
/** A list of objects. */
export const OBJECTS = "objects";
/** An AbortSignal, a gate, an outbox and a store, each recognised by a method. */
export const SIGNAL = ".addEventListener";
export const GATE = "._checkOptions";
export const OUTBOX = ".publish";
export const STORE = ".getSnapshot";

export const CONNECT_TIMEOUT_MS = 20_000;

/** @type {Table} */
export const CONNECT = {
  namespace: [/^\/?[\w-]{0,64}$/],
  autoConnect: ["boolean"],
  token: ["string function null"],
  reconnectDelayMinMs: [[0, MAX_DELAY_MS], 500],
  reconnectDelayMaxMs: [TIME_MS, 20_000],
  connectTimeoutMs: [TIME_MS, CONNECT_TIMEOUT_MS],
  requestTimeoutMs: [TIME_MS, 10_000],
  inboxLimit: [COUNT, 10_000],
  auth: ["object"],
  resume: [POSITION],
  resync: ["function"],
  transport: [["websocket", "stream", "socket.io"]],
  path: [/^\/[^?#]*$/, "/socket.io"],
  io: ["function object"],
  transports: [TEXTS],
  socketOptions: ["object"],
  WebSocket: ["function"],
  // Only for `headgate/tabs`.
  share: ["function"],
};

/** Options of a handler of a topic or pattern. @type {Table} */
export const HANDLER = {
  overflow: [OVERFLOW],
  repair: ["boolean"],
  since: ["object"],
};

/** Options of a subscription. @type {Table} */
export const SUBSCRIBE = { ...HANDLER, signal: [SIGNAL] };

/** Options of a load. @type {Table} */
export const LOAD = {
  reset: ["function"],
  apply: ["function"],
  changed: ["function"],
  since: ["object"],
  signal: [SIGNAL],
  timeoutMs: [TIME_MS],
  resyncSpreadMs: [[0, MAX_DELAY_MS]],
  // Only for stores and live collections.
  eager: ["boolean"],
  loaded: ["boolean"],
  lost: ["function"],
};

/** @type {Table} */
const PLACE = { epoch: [/./, null], offset: [OFFSET, null] };
/** Where in the log a subscription starts. @type {Table} */
const SINCE = { offset: [OFFSET], epoch: ["string"], time: [[0, 2 ** 53 - 1]], last: [COUNT] };

/** @type {Table} */
export const RANGE = { from: [OFFSET], to: [OFFSET], epoch: ["string"] };

/** @type {Table} */
export const PUBLISH = { id: ["string"], echo: ["boolean"], ephemeral: ["boolean"] };

/**
 * Return options with their defaults.
 * @param {string} of the name of the call
 * @param {Table} table
 * @param {any} given
 * @returns {any}
 * @throws {TypeError} an option breaks its rule
 */
export function checkOptions(of, table, given = {}) {
  checkRule(`${of}: options`, "object", given);
  /** @type {Record<string, any>} */
  const options = {};
  for (const [name, [rule, fallback]] of Object.entries(table)) {
    let { [name]: value = fallback } = given;
    checkRule(`${of}: ${name}`, rule === POSITION ? "object null" : rule, value);
    if (name === "since" && value) {
      // It counts until its past has come, and the application may use the object again.
      value = { ...value };
      checkOptions(`${of}: since`, SINCE, value);
      checkArgument(`${of}: since: offset, time or last`, "number", value.offset ?? value.time ?? value.last);
    }
    options[name] = rule === POSITION ? positionOf(`${of}: ${name}`, value) : value;
  }
  reportUnknown(of, table, given);
  return options;
}

/** @param {string} name @param {any} given @returns {import("./protocol.js").Position | undefined} */
function positionOf(name, given) {
  if (!given || (given.epoch ?? given.offset) === null) return;
  const { epoch, offset } = given;
  return checkOptions(name, PLACE, { epoch, offset });
}

/**
 * Check one value, unless it is undefined.
 * @param {string} name @param {Rule} rule @param {any} value
 * @throws {TypeError} it breaks the rule
 */
export function checkRule(name, rule, value) {
  if (value !== undefined) checkArgument(name, rule, value);
}

/**
 * Check one required value.
 * @param {string} name @param {Rule} rule @param {any} value
 * @throws {TypeError} it breaks the rule
 */
export function checkArgument(name, rule, value) {
  const type = value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
  const [least, most, isWhole] = Array.isArray(rule) ? rule : [];
  const meets =
    rule === TEXTS || rule === OBJECTS ? type === "array" && value.every((/** @type {any} */ each) => each && typeof each === (rule === TEXTS ? "string" : "object"))
    : typeof rule === "string" ? !rule || (rule[0] === "." ? typeof Object(value)[rule.slice(1)] === "function" : rule.split(" ").includes(type))
    : typeof least === "string" ? /** @type {any[]} */ (rule).includes(value)
    : Array.isArray(rule) ? type === "number" && value >= least && value <= most && !(isWhole && value % 1)
    : type === "string" && rule.test(value);
  if (!meets) throw TypeError(`headgate: ${name} must be ${wordsOf(rule)}, not ${typeof value === "object" ? type : asText(value).slice(0, 80)}`);
}
