/**
 * The transport carries messages to the gateway and back, over one connection after another. This file has the contract, and chooses a transport.
 *
 * The default is a plain WebSocket (websocket.js). If HTTP gets through and a WebSocket does not, the transport over HTTP (http.js) is loaded, and a
 * WebSocket is tried again every few minutes, after a change of network, and when http.js cannot be loaded. socketio.js is for applications that choose
 * socket.io-client. A page loads neither while WebSockets get through.
 *
 * Each transport promises: `greet` is called once for each `connect` that gets as far as the CONNECT packet. `arrived` gets the messages in order. `lost`
 * or `refused` is called at most once. After it, or after `disconnect`, nothing is called until the next `connect`. A request is sent on the present
 * connection or not at all, and its promise is settled by the answer, the timeout or the end of the connection.
 *
 * @typedef {object} Transport
 * @property {() => void} connect begin; not called while one is under way
 * @property {() => void} disconnect end the connection or the attempt, if there is one; the client may connect again
 * @property {() => void} close the same, for good; the gateway is notified if the transport can do that
 * @property {(spreadMs?: number) => void} probe ask the gateway for a sign of life. Without one in PROBE_MS (and a short grace time) the connection is
 *   lost. `spreadMs`: the network may have changed, for many pages at once
 * @property {(name: string, body: object, timeoutMs: number) => Promise<any>} request returns the acknowledgement
 *
 * @typedef {object} TransportOwner
 * @property {(send: (auth: object) => void) => void} greet the connection is open; make the auth object of CONNECT
 * @property {(name: string, args: any[]) => void} arrived an event of Socket.IO
 * @property {(reason: string, retryAfterS?: number) => void} lost the connection ended, or could not be opened
 * @property {(error: any) => void} refused the namespace answered with CONNECT_ERROR, or the gateway refused over HTTP: {code?, message, …}
 *
 * @typedef {object} TransportOptions
 * @property {"websocket" | "stream" | "socket.io"} [transport] `websocket`: only a WebSocket; `stream`: over HTTP from the start; `socket.io`: by
 *   socket.io-client from the start. Default: a WebSocket, and a stream over HTTP if none gets through
 * @property {any} [io] the application's socket.io-client, used from the start
 * @property {string} [path] of the Socket.IO endpoint, default `/socket.io`
 * @property {("websocket" | "polling")[]} [transports] of socket.io-client, used from the start
 * @property {Record<string, any>} [socketOptions] further options of socket.io-client, used from the start
 * @property {any} [WebSocket] a class that replaces the browser's, such as that of `ws`
 * @property {number} [connectTimeoutMs] default 20000, from the attempt to the arrival of the welcome
 */
import { loadHttp, loadSocketIo } from "./load-transport.js";
import { createWebSocket } from "./websocket.js";

/**
 * @param {string} address origin and namespace @param {TransportOptions} options @param {TransportOwner} owner
 * @param {typeof import("./load-transport.js")} [load] loads what most pages do not need @returns {Transport}
 */
export function createTransport(address, options, owner, load = { loadHttp, loadSocketIo }) {
  const { share } = /** @type {any} */ (options);
  const make = (/** @type {TransportOwner} */ by) => createPlain(address, options, by, load);
  // An option of `headgate/tabs`, which puts a shared transport in the place of this one.
  return share ? share(address, owner, make) : make(owner);
}

/** @param {string} address @param {TransportOptions} options @param {TransportOwner} owner @param {typeof import("./load-transport.js")} load @returns {Transport} */
function createPlain(address, options, owner, load) {
  const { transport, io, transports = ["websocket", "polling"], socketOptions, WebSocket = globalThis.WebSocket } = options;
  const isSocketIo = io || options.transports || socketOptions || transport === "socket.io";
  const isPlain = !isSocketIo && transport !== "stream" && (transport || WebSocket);
  /** @param {TransportOwner & { blocked?: (() => void) | undefined }} by */
  const createSocket = (by) => createWebSocket(address, { ...options, WebSocket }, by);
  const socket = isPlain ? createSocket({ ...owner, blocked: transport ? undefined : blocked }) : undefined;
  let present = socket;
  /** Made with a fallback. @type {ReturnType<typeof import("./way-back.js").createWayBack> | undefined} */
  let wayBack;
  /** Counts connects and disconnects, because a transport may be loaded too late. */
  let generation = 0;

  async function loadOther() {
    const mine = generation;
    try {
      /** @type {any} */
      const loaded = await (isSocketIo ? load.loadSocketIo(io) : load.loadHttp());
      // What is made later would have no owner that closes it.
      if (mine !== generation) return;
      if (isSocketIo) present = loaded[0].createSocketIo(address, { ...options, transports, io: loaded[1].io }, owner);
      else present = loaded.createHttp(address, options, owner);
      if (socket) wayBack = loaded.createWayBack(createSocket, present, owner);
      present?.connect();
    } catch (error) {
      if (mine === generation) owner.lost(`no transport: ${/** @type {Error} */ (error).message}`);
    }
  }

  /** HTTP gets through, and a WebSocket does not. */
  function blocked() {
    present = undefined;
    void loadOther();
  }

  /** @param {"disconnect" | "close"} how */
  function end(how) {
    generation++;
    wayBack?.[how]();
    present?.[how]();
  }

  return {
    connect() {
      generation++;
      if (wayBack?.isOpen()) wayBack = undefined;
      // If the fallback could not be loaded, the WebSocket is tried again.
      if (socket && !wayBack) present = socket;
      if (present) present.connect();
      else void loadOther();
    },
    disconnect: () => end("disconnect"),
    close: () => end("close"),
    probe(spreadMs) {
      present?.probe();
      wayBack?.probe(spreadMs);
    },
    request: async (...request) => present?.request(...request),
  };
}
