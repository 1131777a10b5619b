/** The entry point `headgate/presence`: who is in a topic now. */
export { presence, Room } from "./room.js";
