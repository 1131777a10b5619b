/**
 * Loads the transport by socket.io-client when it is needed, in a page without modules: both are in the file beside this script. The
 * page's own socket.io-client goes before that file's.
 *
 * A dynamic import, not a script element: the page's Content-Security-Policy may require Trusted Types.
 */

/** Where this script came from; it can be asked only while it runs for the first time. */
const HERE = /** @type {HTMLScriptElement | null | undefined} */ (globalThis.document?.currentScript)?.src;

/** @param {any} io the application's own */
export async function loadSocketIo(io = /** @type {any} */ (globalThis).io) {
  const beside = await import(new URL("headgate.socket.io.js", HERE ?? globalThis.location?.href).href);
  return [beside, io ? { io } : beside];
}
