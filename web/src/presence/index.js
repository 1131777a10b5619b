/** The entry point `headgate/presence`: the present members of a topic. */
export { presence, Room } from "./room.js";
