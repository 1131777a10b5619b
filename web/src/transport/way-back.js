/**
 * The way back from the fallback over HTTP to a WebSocket, loaded together with the fallback.
 *
 * In: calls of the transport, time. Out: attempts to open a WebSocket beside the connection over HTTP, every few minutes and soon after a change of
 * network. When one succeeds, the client leaves the connection over HTTP, and the next attempt is by WebSocket. If there is no connection when the time
 * has come, the next attempt is by WebSocket too.
 *
 * @import { Transport, TransportOwner } from "./transport.js"
 * @typedef {"blocked" | "idle" | "trying" | "open"} WayState
 */
import { Machine } from "../base/machine.js";
import { startTimer } from "../base/timer.js";

/**
 * `blocked`: there is a connection or an attempt over HTTP · `idle`: there is none · `trying`: a WebSocket is tried beside it · `open`: the next
 * attempt is by WebSocket.
 *
 * `due`: it is time to try · `shut`: the WebSocket has failed · `pass`: it gets through · `end`: the connection has ended · `begin`: another begins over HTTP.
 * @type {Record<WayState, Partial<Record<"due" | "shut" | "pass" | "end" | "begin", WayState>>>}
 */
export const WAY_BACK = {
  blocked: { due: "trying", end: "idle" },
  trying: { shut: "blocked", pass: "open", end: "idle" },
  idle: { due: "open", begin: "blocked" },
  open: {},
};

/** Time between two attempts by WebSocket. */
const HTTP_MS = 300_000;

/**
 * @param {(owner: TransportOwner) => Transport} createSocket makes a WebSocket transport @param {Transport} http the connection over HTTP
 * @param {TransportOwner} owner of `http`
 */
export function createWayBack(createSocket, http, owner) {
  const life = new Machine(WAY_BACK, "blocked");
  const shut = () => void life.offer("shut");
  const trial = createSocket({ greet: pass, arrived() {}, lost: shut, refused: shut });
  /** @type {ReturnType<typeof setTimeout>} */
  let timer;

  /** @param {number} delayMs */
  function tryIn(delayMs) {
    clearTimeout(timer);
    timer = startTimer(act, delayMs);
  }

  function act() {
    tryIn(HTTP_MS);
    if (!life.offer("due")) return;
    if (life.is("trying")) trial.connect();
    else clearTimeout(timer);
  }

  /** A WebSocket gets through. */
  function pass() {
    trial.disconnect();
    life.take("pass");
    clearTimeout(timer);
    http.disconnect();
    owner.lost("a WebSocket gets through again");
  }

  function disconnect() {
    trial.disconnect();
    life.offer("end");
  }

  tryIn(HTTP_MS);
  return {
    /** Return whether the next attempt is by WebSocket. If not, one over HTTP begins. */
    isOpen() {
      life.offer("begin");
      return life.is("open");
    },

    /** The connection over HTTP has ended. */
    disconnect,

    close() {
      disconnect();
      clearTimeout(timer);
    },

    /** @param {number} [spreadMs] the network may have changed, for many pages at once */
    probe(spreadMs) {
      if (spreadMs && !life.is("open")) tryIn(Math.random() * spreadMs);
    },
  };
}
