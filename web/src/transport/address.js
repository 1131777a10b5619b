/**
 * Addresses of the gateway and of its Socket.IO endpoint. Pure functions.
 *
 * In: the argument of `connect`. Out: an address (an origin of http or https, and a namespace), and the URLs to dial. No other file of the client
 * builds a URL. A part that an address has no place for is refused, never dropped.
 */
import { asText } from "../language/as-text.js";
import { HeadgateError } from "../language/errors.js";

/** Schemes of a request. `ws` and `wss` are accepted too. */
const SCHEME = /^https?:$/;

/**
 * Return origin and namespace.
 * @param {string | undefined} given an origin, default the page's own
 * @param {string} [namespace] with or without its slash; options.js has its grammar
 * @throws {HeadgateError} `invalid_address` {url, reason}
 */
export function addressOf(given, namespace = "notifications") {
  // No base URL, because `example.com` is a mistake and not a path of this page.
  const url = given === undefined ? globalThis.location?.href : asText(given);
  let reason;
  try {
    const { href, host, protocol } = new URL(/** @type {string} */ (url));
    const scheme = protocol.replace("ws", "http");
    // A page opened as a file has no origin.
    reason = SCHEME.test(scheme) ? "more than an origin" : `scheme ${protocol}`;
    if (SCHEME.test(scheme) && (given === undefined || href === `${protocol}//${host}/`)) return `${scheme}//${host}/${String(namespace).replace("/", "")}`;
  } catch (error) {
    reason = String(error);
  }
  throw new HeadgateError("invalid_address", { url, reason });
}

/**
 * Return a URL of the Socket.IO endpoint, or below it. It is built as text, because the `URL` of React Native has no setters. Nothing after the origin can
 * lead to another host.
 * @param {string} address origin and namespace
 * @param {string} path of the endpoint
 * @param {string} rest begins with a name or a query
 */
export function endpointOf(address, path, rest) {
  return address.replace(/\/[^/]*$/, "") + path.replace(/\/?$/, "/") + rest;
}
