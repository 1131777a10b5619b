/** socket.io-client and its transport in one file, for the script-tag build (load-transport.js). */
export { io } from "socket.io-client";
export { createSocketIo } from "../transport/socketio.js";
