/**
 * The transport: the way to the gateway and back for one connection after another. The contract, and the choice of one.
 *
 * A plain WebSocket (websocket.js) unless the application chooses otherwise. Where HTTP gets through and a WebSocket does not, the
 * transport over HTTP is loaded (http.js), and a WebSocket is tried again every few minutes, when the network is another, and when HTTP could
 * not be loaded. socketio.js is for applications that ask for socket.io-client. A
 * page loads neither while WebSockets get through.
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
 * @property {(spreadMs?: number) => void} probe ask the gateway for a sign of life: without one in PROBE_MS (and a little) the connection is lost.
 *   `spreadMs`: the network may have changed, for many pages at once
 * @property {(name: string, body: object, timeoutMs: number) => Promise<any>} request returns the acknowledgement
 *
 * @typedef {object} TransportOwner
 * @property {(send: (auth: object) => void) => void} greet the way is open: make the auth object of CONNECT
 * @property {(name: string, args: any[]) => void} arrived an event of Socket.IO
 * @property {(reason: string, retryAfterS?: number) => void} lost it ended, or could not be opened
 * @property {(error: any) => void} refused the namespace answered with CONNECT_ERROR, or the gateway refused over HTTP: {code?, message, …}
 *
 * @typedef {object} TransportOptions
 * @property {"websocket" | "stream" | "socket.io"} [transport] `websocket`: nothing else; `stream`: over HTTP from the start; `socket.io`: by
 *   socket.io-client from the start. Default: a WebSocket, and a stream over HTTP where that does not get through
 * @property {any} [io] a socket.io-client of the application's, which is then used from the start
 * @property {string} [path] of the Socket.IO endpoint, default `/socket.io`
 * @property {("websocket" | "polling")[]} [transports] of socket.io-client, which is then used from the start
 * @property {Record<string, any>} [socketOptions] anything else for socket.io-client, which is then used from the start
 * @property {any} [WebSocket] a class in the place of the browser's own, such as that of `ws`
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
  // Of `headgate/tabs`, which makes another in the place of this one.
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
  /** Of a fallback, which is loaded with it. @type {ReturnType<typeof import("./way-back.js").createWayBack> | undefined} */
  let wayBack;
  /** Rises with every connect and disconnect: what is loaded may come too late. */
  let generation = 0;

  async function loadOther() {
    const mine = generation;
    try {
      const made = isSocketIo ? await socketIo() : await http();
      if (mine !== generation) return;
      present = made;
      present.connect();
    } catch (error) {
      if (mine === generation) owner.lost(`no transport: ${/** @type {Error} */ (error).message}`);
    }
  }

  async function socketIo() {
    const [{ createSocketIo }, found] = await load.loadSocketIo(io);
    return createSocketIo(address, { ...options, transports, io: found.io }, owner);
  }

  async function http() {
    const { createHttp, createWayBack } = await load.loadHttp();
    const made = createHttp(address, options, owner);
    if (socket) wayBack = createWayBack(createSocket, made, owner);
    return made;
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
      // A fallback that could not be loaded is none.
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
