/**
 * A gate that belongs to a component: made while a page or a server renders, opened when the component is mounted.
 *
 * @import { ConnectOptions } from "../connect.js"
 */
import { connect } from "../index.js";

/** A server has no page whose origin would be the address, and opens no gate. */
const NOWHERE = "http://localhost";

/** @param {string | undefined} url default the page's own origin @param {ConnectOptions} [options] */
export function createComponentGate(url, options) {
  return connect(url ?? (globalThis.location ? undefined : NOWHERE), { ...options, autoConnect: false });
}
