/** socket.io-client and the transport by it as a file of their own, for the script-tag build (load-socketio-script.js). */
export { io } from "socket.io-client";
export { createSocketIo } from "./socketio.js";
