/**
 * A gate that belongs to a component: made while a page or a server renders, opened when the component is mounted.
 *
 * @import { ConnectOptions } from "../connect.js"
 */
import { connect } from "../index.js";

/** On a server there is no page to take the address from, so no gate is opened. */
const NOWHERE = "http://localhost";

/** @param {string | undefined} url default the page's own origin @param {ConnectOptions} [options] */
export function createComponentGate(url, options) {
  return connect(url === undefined && !globalThis.location ? NOWHERE : url, { ...options, autoConnect: false });
}
