/** socket.io-client and the transport by it as a file of their own, for the script-tag build (load-transport.js). */
export { io } from "socket.io-client";
export { createSocketIo } from "../transport/socketio.js";
