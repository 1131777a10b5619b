/**
 * The script-tag build: `window.headgate`, with the inbox. LiveModel, LiveCollection and NotificationList
 * are made of the page's own Backbone when they are first asked for, so pages without Backbone can do without it and the
 * order of the script tags does not matter.
 */
import * as inbox from "../inbox/index.js";
import * as headgate from "../index.js";

/** @returns {typeof import("../backbone/index.js")} */
function live() {
  if (!("Backbone" in globalThis)) throw new Error("headgate: LiveModel, LiveCollection and NotificationList need Backbone on this page");
  return require("../backbone/index.js");
}

const names = /** @type {const} */ (["LiveModel", "LiveCollection", "NotificationList"]);
const page = { ...headgate, ...inbox };
for (const name of names) Object.defineProperty(page, name, { get: () => live()[name], enumerable: true });
/** @type {any} */ (globalThis).headgate = page;
