/**
 * Addresses: the gateway's, read once, and those of its Socket.IO endpoint. Pure functions.
 *
 * In: what the application gave to `connect`. Out: an address, which is an origin of http or https and a namespace, and the dialled URLs. Nothing else
 * of the client puts a URL together. What an address cannot carry is refused, never dropped.
 */
import { asText } from "../language/as-text.js";
import { HeadgateError } from "../language/errors.js";

/** Of a request; `ws` and `wss` are accepted in their place. */
const SCHEME = /^https?:$/;

/**
 * Return origin and namespace.
 * @param {string | undefined} given an origin; default: that of the page, without its path and query
 * @param {string} [namespace] with or without its slash; options.js has its grammar
 * @throws {HeadgateError} `invalid_address` {url, reason}
 */
export function addressOf(given, namespace = "notifications") {
  // Without a base: `example.com` is a mistake, not a file of this page.
  const url = given === undefined ? globalThis.location?.href : asText(given);
  let reason;
  try {
    const { href, host, protocol } = new URL(/** @type {string} */ (url));
    const scheme = protocol.replace("ws", "http");
    // A page that was opened as a file has no origin.
    reason = SCHEME.test(scheme) ? "more than an origin" : `scheme ${protocol}`;
    if (SCHEME.test(scheme) && (given === undefined || href === `${protocol}//${host}/`)) return `${scheme}//${host}/${String(namespace).replace("/", "")}`;
  } catch (error) {
    reason = String(error);
  }
  throw new HeadgateError("invalid_address", { url, reason });
}

/**
 * Return a URL of the Socket.IO endpoint, or below it. As text, since the `URL` of React Native has no setters. Whatever follows the origin leads to no
 * other host.
 * @param {string} address origin and namespace
 * @param {string} path of the endpoint
 * @param {string} rest begins with a name or a query
 */
export function endpointOf(address, path, rest) {
  return address.replace(/\/[^/]*$/, "") + path.replace(/\/?$/, "/") + rest;
}
