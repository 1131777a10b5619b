/**
 * Addresses: the gateway's, read once, and those of its Socket.IO endpoint. Pure functions.
 *
 * In: what the application gave to `connect`. Out: an address, which is an origin of http or https and a namespace, and the URLs that are dialled. Nothing else
 * of the client puts a URL together. What an address cannot carry is refused, never dropped.
 */
import { HeadgateError } from "../language/errors.js";

/** Schemes that are accepted, each with the one that a request takes. @type {Record<string, string>} */
const HTTP = { "http:": "http:", "https:": "https:", "ws:": "http:", "wss:": "https:" };

/**
 * Return origin and namespace.
 * @param {string | undefined} given an origin; default: that of the page, without its path and query
 * @param {string} [namespace] with or without its slash; options.js has its grammar
 * @throws {HeadgateError} `invalid_address` {url, reason}
 */
export function addressOf(given, namespace = "notifications") {
  // Without a base: `example.com` is a mistake, not a file of this page.
  const url = given || globalThis.location?.href;
  let reason;
  try {
    const { protocol, host, username, password, pathname, search, hash } = new URL(/** @type {string} */ (url));
    const extras = Object.entries({ credentials: username + password, path: pathname.slice(1), query: search, fragment: hash });
    const extra = given && extras.find(([, value]) => value);
    // A page that was opened as a file has no origin.
    reason = extra ? `an origin has no ${extra[0]}` : `scheme ${protocol}`;
    if (HTTP[protocol] && !extra) return `${HTTP[protocol]}//${host}/${String(namespace).replace("/", "")}`;
  } catch (error) {
    reason = String(error);
  }
  throw new HeadgateError("invalid_address", { url, reason });
}

/**
 * Return the URL of the Socket.IO endpoint.
 * @param {string} address origin and namespace
 * @param {string} path of the endpoint
 * @param {"websocket" | "polling"} transport
 */
export function endpointOf(address, path, transport) {
  const url = new URL(address);
  // A setter cannot lead to another host, whatever the path is.
  url.pathname = path.replace(/\/?$/, "/");
  url.search = `EIO=4&transport=${transport}`;
  if (transport === "websocket") url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url.href;
}
