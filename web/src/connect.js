/**
 * `connect`: the way in.
 *
 * @import { SessionOptions } from "./session.js"
 *
 * @typedef {object} ConnectOnlyOptions
 * @property {string} [namespace] default `/notifications`
 * @property {boolean} [autoConnect] false: `gate.open()` connects
 * @typedef {ConnectOnlyOptions & SessionOptions} ConnectOptions
 */
import { HeadgateError } from "./errors.js";
import { Gate } from "./gate.js";

/** Least value of each option that is a number: below it the client would spin or never connect. */
const LEAST = { reconnectDelayMinMs: 0, reconnectDelayMaxMs: 1, connectTimeoutMs: 1, requestTimeoutMs: 1, inboxLimit: 1 };
/** The ways that can be named; without a name, the second is there for networks that let no WebSocket through. @type {(string | undefined)[]} */
const TRANSPORTS = ["websocket", "socket.io"];

/**
 * Connect to a gateway.
 *
 * The connection is made after the present task, so handlers bound right away are part of the first CONNECT.
 * @param {string} [url] origin of the gateway, such as `https://example.com`, default the page's own
 * @param {ConnectOptions} [options]
 * @returns {Gate}
 * @throws {HeadgateError} `invalid_address`: not a URL of http, https, ws or wss
 * @throws {TypeError} an option of the wrong type, or below its least value
 */
export function connect(url, { namespace = "notifications", autoConnect = true, ...options } = {}) {
  // Without a base: `example.com` is a mistake, not a file of this page.
  const origin = originOf(url || globalThis.location?.href);
  checkNumbers(options);
  const { transport } = options;
  if (transport !== undefined && !TRANSPORTS.includes(transport)) throw TypeError(`headgate: transport must be ${TRANSPORTS.join(" or ")}, not ${transport}`);
  const gate = new Gate(`${origin}/${namespace.replace("/", "")}`, options);
  if (autoConnect) queueMicrotask(() => gate.open());
  return gate;
}

/** @param {string} url */
function originOf(url) {
  try {
    const { origin, protocol } = new URL(url);
    // A page that was opened as a file has no origin.
    if (!/^(http|ws)s?:/.test(protocol)) throw TypeError(protocol);
    return origin;
  } catch (error) {
    throw new HeadgateError("invalid_address", { url }, false, undefined, error);
  }
}

/** @param {Record<string, any>} options */
function checkNumbers(options) {
  for (const [name, least] of Object.entries(LEAST)) {
    const value = options[name];
    if (value !== undefined && !(Number.isFinite(value) && value >= least)) {
      throw TypeError(`headgate: ${name} must be at least ${least}, not ${value}`);
    }
  }
}
