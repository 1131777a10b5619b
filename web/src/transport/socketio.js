/**
 * The transport by socket.io-client, with long-polling, upgrade, and its other options. No other file uses its objects.
 *
 * Its own reconnection is off, because it has no full jitter and does not know refusals, drains and frozen pages. connection.js reconnects.
 *
 * @import { Socket } from "socket.io-client"
 * @import { Transport, TransportOptions, TransportOwner } from "./transport.js"
 */
import { PROBE_MS, UNSUBSCRIBE } from "../language/protocol.js";
import { reasonOf, unanswered } from "./reason.js";

/** A pattern that no page subscribes. A request to unsubscribe it changes nothing and is answered. */
const UNUSED = "-.-.-.-.-.-.-.-";

/** @param {string} address origin and namespace @param {TransportOptions} options with `io` @param {TransportOwner} owner @returns {Transport} */
export function createSocketIo(address, { io, path, transports, socketOptions }, owner) {
  /** @type {Socket} */
  const socket = io(address, {
    path,
    transports,
    tryAllTransports: true,
    ...socketOptions,
    auth: owner.greet,
    autoConnect: false,
    forceNew: true,
    reconnection: false,
  });
  let wanted = false;
  /** Counts connections, so that a missing answer on an older one does not end the present one. */
  let nth = 0;

  /** @param {string} reason @param {number} [retryAfterS] */
  function lost(reason, retryAfterS) {
    if (!wanted) return;
    wanted = false;
    owner.lost(reason, retryAfterS);
  }

  socket.onAny((name, ...args) => wanted && owner.arrived(name, args));
  socket.on("disconnect", (reason, details) => lost(reasonOfDisconnect(reason, details)));
  socket.on("connect_error", (/** @type {any} */ error) => {
    // Only a refusal by the namespace has `data`. Anything else is a network error, or a gateway's answer over HTTP.
    const { reason = "", retryAfterS, error: refusal } = "data" in error ? { error: { message: error.message, ...error.data } } : reasonOfError(error, address);
    if (!refusal) lost(reason, retryAfterS);
    else if (wanted) {
      wanted = false;
      owner.refused(refusal);
    }
  });

  function disconnect() {
    wanted = false;
    socket.disconnect();
    // A buffered request must not be sent on the next connection.
    socket.sendBuffer = [];
  }

  return {
    connect() {
      wanted = true;
      nth++;
      socket.connect();
    },
    disconnect,
    close() {
      disconnect();
      socket.off().offAny();
    },
    probe() {
      const mine = nth;
      if (!socket.connected) return;
      socket.timeout(PROBE_MS).emitWithAck(UNSUBSCRIBE, { pattern: UNUSED }).catch(() => mine === nth && lost("ping timeout"));
    },
    request: (name, body, timeoutMs) => socket.timeout(timeoutMs).emitWithAck(name, body),
  };
}

/**
 * @param {any} error socket.io-client's: {message, description?, context?: XMLHttpRequest}
 * @param {string} address
 * @returns {ReturnType<typeof reasonOf>}
 */
function reasonOfError(error, address) {
  const { message, description, context } = Object(error);
  // In Node the error of a WebSocket has a `description`, which browsers do not reveal.
  if (!context?.status) return { reason: unanswered(address, String(description?.message || message || error)) };
  return reasonOf(context.status, textOf(context), context.getResponseHeader?.("Retry-After"));
}

/** Add the reason that the server gives, if it can be read. @param {string} reason @param {any} [details] socket.io-client's */
function reasonOfDisconnect(reason, details) {
  return details?.context?.status ? `${reason}: ${reasonOfError(details, "").reason}` : reason;
}

/** @param {any} context */
function textOf(context) {
  try {
    return context.responseText;
  } catch {
    // The getter throws for a response other than text.
    return "";
  }
}
