/**
 * Files in the folder of the script of a page without modules, loaded when they are needed.
 *
 * A dynamic import, not a script element: the page's Content-Security-Policy may require Trusted Types.
 */

/** Where this script came from; it can be asked only while it runs for the first time. */
const HERE = /** @type {HTMLScriptElement | null | undefined} */ (globalThis.document?.currentScript)?.src;

/** Load a file by its name. @param {string} name @returns {Promise<any>} */
export const beside = async (name) => import(new URL(name, HERE ?? globalThis.location?.href).href);
