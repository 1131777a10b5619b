/**
 * The transport: the way to the gateway and back for one connection after another. The contract, and the choice of one.
 *
 * A plain WebSocket (websocket.js) unless the application says otherwise. Where HTTP gets through and a WebSocket does not,
 * socket.io-client is loaded (socketio.js) and does long-polling and upgrade, for as long as the gate lives. A page whose network
 * is fine never loads it.
 *
 * Promises of each: `greet` is called once for each `connect` that gets as far as the CONNECT packet. Messages are given to `arrived`
 * in order. `lost` or `refused` is called at most once, nothing is called after it or after `disconnect`, until the next
 * `connect`. A request is sent on the connection of its time or on none, and its promise is settled by the answer, by the time or
 * by the end of the connection.
 *
 * @typedef {object} Transport
 * @property {() => void} connect begin; not called while one is under way
 * @property {() => void} disconnect end the connection or the attempt, if there is one
 * @property {() => void} close the same, for good
 * @property {() => void} probe ask the gateway for a sign of life: without one in PROBE_MS (and a little) the connection is lost
 * @property {(name: string, body: object, timeoutMs: number) => Promise<any>} request returns the acknowledgement
 *
 * @typedef {object} TransportOwner
 * @property {(send: (auth: object) => void) => void} greet the way is open: make the auth object of CONNECT
 * @property {(name: string, args: any[]) => void} arrived an event of Socket.IO
 * @property {(reason: string, retryAfterS?: number) => void} lost it ended, or could not be opened
 * @property {(error: any) => void} refused the namespace answered with CONNECT_ERROR, or the gateway with an error of its own over HTTP: {code?, message, …}
 *
 * @typedef {object} TransportOptions
 * @property {"websocket" | "socket.io"} [transport] `websocket`: nothing else; `socket.io`: by socket.io-client from the start.
 *   Default: a WebSocket, and socket.io-client where that does not get through
 * @property {any} [io] a socket.io-client of the application's, which is then used from the start
 * @property {string} [path] of the Socket.IO endpoint, default `/socket.io`
 * @property {("websocket" | "polling")[]} [transports] of socket.io-client, which is then used from the start
 * @property {Record<string, any>} [socketOptions] anything else for socket.io-client, which is then used from the start
 * @property {any} [WebSocket] a class in the place of the browser's own, such as that of `ws`
 * @property {number} [connectTimeoutMs] default 20000, from the attempt to the arrival of the welcome
 */
import { loadSocketIo } from "./load-socketio.js";
import { createWebSocket } from "./websocket.js";

/** @param {string} address origin and namespace @param {TransportOptions} options @param {TransportOwner} owner @returns {Transport} */
export function createTransport(address, options, owner) {
  // Of `headgate/tabs`, which makes another in the place of this one.
  const { share } = /** @type {any} */ (options);
  return share ? share(address, owner, (/** @type {TransportOwner} */ each) => createPlain(address, options, each)) : createPlain(address, options, owner);
}

/** @param {string} address @param {TransportOptions} options @param {TransportOwner} owner @returns {Transport} */
function createPlain(address, options, owner) {
  const { transport, io, transports, socketOptions, WebSocket = globalThis.WebSocket } = options;
  const polls = io || transports || socketOptions || transport === "socket.io" || (!transport && !WebSocket);
  /** @type {Transport | undefined} */
  let present = polls ? undefined : createWebSocket(address, { ...options, WebSocket }, { ...owner, blocked: transport ? undefined : blocked });
  /** Rises with every connect and disconnect: socket.io-client may come too late. */
  let generation = 0;

  function blocked() {
    present = undefined;
    void load(["polling", "websocket"]);
  }

  /** @param {("websocket" | "polling")[]} order of its transports */
  async function load(order) {
    const mine = generation;
    try {
      const [{ createSocketIo }, found] = await loadSocketIo(io);
      if (mine !== generation) return;
      present = createSocketIo(address, { ...options, transports: transports ?? order, io: found.io }, owner);
      present.connect();
    } catch (error) {
      if (mine === generation) owner.lost(`no socket.io-client: ${/** @type {Error} */ (error).message}`);
    }
  }

  return {
    connect() {
      generation++;
      if (present) present.connect();
      else void load(["websocket", "polling"]);
    },
    disconnect() {
      generation++;
      present?.disconnect();
    },
    close() {
      generation++;
      present?.close();
    },
    probe: () => present?.probe(),
    request: async (...request) => present?.request(...request),
  };
}
