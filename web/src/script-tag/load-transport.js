/**
 * Loads a transport in a page without modules, from a file beside this script. The page's own socket.io-client has precedence over the one in that file.
 */
import { beside } from "./beside.js";

export const loadHttp = () => beside("headgate.http.js");

/** @param {any} io the application's socket.io-client */
export async function loadSocketIo(io = /** @type {any} */ (globalThis).io) {
  const found = await beside("headgate.socket.io.js");
  return [found, io ? { io } : found];
}
