/**
 * Loads a transport on demand, each from a separate chunk of the page's build, and socket.io-client unless the application brings its own.
 * (The script-tag build replaces this file.)
 */

export const loadHttp = () => import("./http.js");

/** @param {any} io the application's socket.io-client */
export const loadSocketIo = (io) => Promise.all([import("./socketio.js"), io ? { io } : import("socket.io-client")]);
