/**
 * The script-tag build: `window.headgate`, with the inbox. LiveModel, LiveCollection and NotificationList are made from the page's own Backbone when they are
 * first used, so a page needs no Backbone otherwise, and the order of the script tags does not matter.
 */
import * as inbox from "../inbox/index.js";
import * as headgate from "../index.js";

const page = { ...headgate, ...inbox };
for (const name of /** @type {const} */ (["LiveModel", "LiveCollection", "NotificationList"])) {
  const get = () => {
    if (!("Backbone" in globalThis)) throw new Error(`headgate: ${name} needs Backbone on this page`);
    return require("../backbone/index.js")[name];
  };
  Object.defineProperty(page, name, { get, enumerable: true });
}
/** @type {any} */ (globalThis).headgate = page;
