/**
 * `connect` makes a gate and connects it.
 *
 * @import { SessionOptions } from "./session/session.js"
 *
 * @typedef {object} ConnectOnlyOptions
 * @property {string} [namespace] default `/notifications`
 * @property {boolean} [autoConnect] false: only `gate.open()` connects
 * @typedef {ConnectOnlyOptions & SessionOptions} ConnectOptions
 */
import { Gate } from "./gate.js";
import { loadDebug } from "./load-debug.js";
import { addressOf } from "./transport/address.js";

/**
 * Connect to a gateway.
 *
 * It connects after the present task, so the first CONNECT includes handlers bound at once.
 * @param {string} [url] origin of the gateway, such as `https://example.com` or `wss://example.com`, default the page's own
 * @param {ConnectOptions} [options]
 * @returns {Gate}
 * @throws {HeadgateError} `invalid_address`: not an origin of http, https, ws or wss
 * @throws {TypeError} an option that breaks its rule (options.js)
 */
export function connect(url, options = {}) {
  const gate = new Gate(addressOf(url, Object(options).namespace), options);
  if (options.autoConnect ?? true) queueMicrotask(() => gate.open());
  try {
    // Only of a page, because Node 25 warns about each access.
    if (globalThis.document && localStorage.headgate === "debug") loadDebug().then(({ debug }) => debug(gate)).catch(console.warn);
  } catch {
    // There is no storage, or the page must not read it.
  }
  return gate;
}
