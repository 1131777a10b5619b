/** The entry point `headgate/presence`: who is in a topic now. */
export { presence, ROOM, Room } from "./room.js";
