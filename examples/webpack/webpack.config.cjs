/** socket.io-client becomes a chunk of its own, which a page requests only where no WebSocket gets through. */
module.exports = { mode: "production", entry: "./main.js" };
