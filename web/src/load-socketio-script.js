/**
 * Loads socket.io-client when it is needed, in a page without modules: the page's own if it has one, else the file beside this script.
 *
 * A dynamic import, not a script element: the page's Content-Security-Policy may require Trusted Types.
 */

/** Where this script came from; it can be asked only while it runs for the first time. */
const HERE = /** @type {HTMLScriptElement | null | undefined} */ (globalThis.document?.currentScript)?.src;

export async function loadSocketIo() {
  const { io } = /** @type {any} */ (globalThis);
  if (io) return io;
  const module = await import(new URL("headgate.socket.io.js", HERE ?? globalThis.location?.href).href);
  return module.io;
}
