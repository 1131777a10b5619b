/**
 * Loads a transport when it is needed: chunks of their own in the page's build, and socket.io-client unless the application has its own.
 * (The script-tag build has another file here.)
 */

export const loadHttp = () => import("./http.js");

/** @param {any} io the application's own */
export const loadSocketIo = (io) => Promise.all([import("./socketio.js"), io ? { io } : import("socket.io-client")]);
