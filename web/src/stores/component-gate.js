/**
 * A gate that belongs to a component. It is made when a page or a server renders, and opened when the component is mounted.
 *
 * @import { ConnectOptions } from "../connect.js"
 */
import { connect } from "../index.js";

/** The address on a server, without a page and without an open gate. */
const NOWHERE = "http://localhost";

/** @param {string | undefined} url default the page's own origin @param {ConnectOptions} [options] */
export function createComponentGate(url, options) {
  return connect(url === undefined && !globalThis.location ? NOWHERE : url, { ...options, autoConnect: false });
}
