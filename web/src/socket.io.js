/** socket.io-client as a file of its own, for the script-tag build (load-socketio-script.js). */
export { io } from "socket.io-client";
