/**
 * `connect`: the way in.
 *
 * @import { Overflow, Position, Gap } from "./protocol.js"
 * @import { TokenSource } from "./token.js"
 *
 * @typedef {object} ConnectOptions
 * @property {string} [namespace] default `/notifications`
 * @property {TokenSource} [token] a value, or a function (may be async) that is asked at each connect and before expiry
 * @property {Record<string, any>} [auth] more for the CONNECT auth object
 * @property {Position} [resume] where an earlier page of this user stopped, from its `state`
 * @property {(gap: Gap) => void} [resync] called when events are gone for good
 * @property {string} [path] of the Socket.IO endpoint, default `/socket.io`
 * @property {("websocket" | "polling")[]} [transports] default WebSocket, then long-polling
 * @property {number} [reconnectDelayMinMs] default 500
 * @property {number} [reconnectDelayMaxMs] default 20000
 * @property {number} [connectTimeoutMs] default 20000, from the attempt to the welcome
 * @property {number} [requestTimeoutMs] default 10000
 * @property {number} [inboxLimit] messages that may wait for a busy page, default 10000
 * @property {boolean} [autoConnect] false: `gate.open()` connects
 * @property {Record<string, any>} [socketOptions] anything else for socket.io-client
 * @property {any} [io] another socket.io-client
 */
import { io as socketIo } from "socket.io-client";
import { Gate } from "./gate.js";

const DEFAULTS = {
  io: socketIo,
  reconnectDelayMinMs: 500,
  reconnectDelayMaxMs: 20_000,
  connectTimeoutMs: 20_000,
  requestTimeoutMs: 10_000,
  inboxLimit: 10_000,
};

/**
 * Connect to a gateway.
 *
 * The connection is made after the present task, so handlers bound right away are part of the first CONNECT.
 * @param {string} [url] origin of the gateway, default the page's own
 * @param {ConnectOptions} [options]
 * @returns {Gate}
 */
export function connect(url, { namespace = "notifications", autoConnect = true, path, transports, ...options } = {}) {
  const page = globalThis.location?.href;
  const { origin } = new URL(url || page, page);
  const socketOptions = { ...(path && { path }), ...(transports && { transports }), ...options.socketOptions };
  // An option that is there but undefined means the default too: a limit of undefined would be none.
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
  const gate = new Gate(`${origin}/${namespace.replace("/", "")}`, { ...DEFAULTS, ...given, socketOptions });
  if (autoConnect) queueMicrotask(() => gate.state.connection === "waiting" && gate.open());
  return gate;
}
