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
 * @param {string} [url] origin of the gateway, default the page's own
 * @param {ConnectOptions} [options]
 * @returns {Gate}
 */
export function connect(url, { namespace = "notifications", autoConnect = true, ...options } = {}) {
  const page = globalThis.location?.href;
  const { origin } = new URL(url || page, page);
  const gate = new Gate(`${origin}/${namespace.replace("/", "")}`, options);
  if (autoConnect) queueMicrotask(() => gate.open());
  return gate;
}
