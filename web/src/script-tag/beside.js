/**
 * Loads files from the folder of the script in a page without modules.
 *
 * It uses a dynamic import and not a script element, because the page's Content-Security-Policy may require Trusted Types.
 */

/** The address of this script, known only while it runs for the first time. */
const HERE = /** @type {HTMLScriptElement | null | undefined} */ (globalThis.document?.currentScript)?.src;

/** Load a file by its name. @param {string} name @returns {Promise<any>} */
export const beside = async (name) => import(new URL(name, HERE ?? globalThis.location?.href).href);
