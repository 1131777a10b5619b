/** Loads the debug log: a separate chunk of the page's build. (The script-tag build has another file here.) */

export const loadDebug = () => import("./debug.js");
