/**
 * The way back: from a fallback over HTTP to a WebSocket. It is loaded with the fallback.
 *
 * In: calls of the transport, time. Out: a WebSocket tried beside the connection over HTTP, every few minutes, and soon when the network
 * may be another. When one gets through, the connection over HTTP is left, and the next attempt is by WebSocket; so is an attempt that
 * is made when it is time, without a connection to keep.
 *
 * @import { Transport, TransportOwner } from "./transport.js"
 * @typedef {"blocked" | "idle" | "trying" | "open"} WayState
 */
import { Machine } from "../base/machine.js";
import { startTimer } from "../base/timer.js";

/**
 * `blocked`: there is a connection over HTTP, or an attempt · `idle`: there is none · `trying`: a WebSocket is tried beside it · `open`: the next
 * attempt is by WebSocket.
 *
 * `due`: it is time · `shut`: that WebSocket did not get through · `pass`: it did · `end`: the connection has ended · `begin`: another begins over HTTP.
 * @type {Record<WayState, Partial<Record<"due" | "shut" | "pass" | "end" | "begin", WayState>>>}
 */
export const WAY_BACK = {
  blocked: { due: "trying", end: "idle" },
  trying: { shut: "blocked", pass: "open", end: "idle" },
  idle: { due: "open", begin: "blocked" },
  open: {},
};

/** Time over HTTP after which a WebSocket is tried. */
const HTTP_MS = 300_000;

/**
 * @param {(owner: TransportOwner) => Transport} createSocket makes a WebSocket transport @param {Transport} http the connection over HTTP
 * @param {TransportOwner} owner of that
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
    /** Return whether the next attempt is by WebSocket. Else it begins over HTTP. */
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

    /** @param {number} [spreadMs] the network may be another, and many pages learn of it at once */
    probe(spreadMs) {
      if (spreadMs && !life.is("open")) tryIn(Math.random() * spreadMs);
    },
  };
}
