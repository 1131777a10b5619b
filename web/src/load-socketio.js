/**
 * Loads the transport by socket.io-client when it is needed, and socket.io-client unless the application has its own: chunks of their
 * own in the page's build. (The script-tag build has another file here.)
 *
 * @param {any} io the application's own
 */
export const loadSocketIo = (io) => Promise.all([import("./socketio.js"), io ? { io } : import("socket.io-client")]);
