/** Loads the debug log from a separate chunk of the page's build. (The script-tag build replaces this file.) */

export const loadDebug = () => import("./debug.js");
