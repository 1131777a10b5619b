/**
 * Loads a transport when it is needed, in a page without modules: each is in a file beside this script. The page's own socket.io-client
 * goes before that file's.
 */
import { beside } from "./beside.js";

export const loadHttp = () => beside("headgate.http.js");

/** @param {any} io the application's own */
export async function loadSocketIo(io = /** @type {any} */ (globalThis).io) {
  const found = await beside("headgate.socket.io.js");
  return [found, io ? { io } : found];
}
