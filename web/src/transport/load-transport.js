/**
 * Loads a transport on demand: separate chunks of the page's build, and socket.io-client unless the application brings it.
 * (The script-tag build has another file here.)
 */

export const loadHttp = () => import("./http.js");

/** @param {any} io the application's own */
export const loadSocketIo = (io) => Promise.all([import("./socketio.js"), io ? { io } : import("socket.io-client")]);
