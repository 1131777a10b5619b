/** Loads the debug log in a page without modules. */
import { beside } from "./beside.js";

export const loadDebug = () => beside("headgate.debug.js");
