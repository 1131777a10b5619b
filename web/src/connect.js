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
import { Gate } from "./gate.js";

/**
 * Connect to a gateway.
 *
 * The connection is made after the present task, so handlers bound right away are part of the first CONNECT.
 * @param {string} [url] origin of the gateway, such as `https://example.com`, default the page's own
 * @param {ConnectOptions} [options]
 * @returns {Gate}
 * @throws {TypeError} not a URL
 */
export function connect(url, { namespace = "notifications", autoConnect = true, ...options } = {}) {
  // Without a base: `example.com` is a mistake, not a file of this page.
  const { origin } = new URL(url || globalThis.location?.href);
  const gate = new Gate(`${origin}/${namespace.replace("/", "")}`, options);
  if (autoConnect) queueMicrotask(() => gate.open());
  return gate;
}
