/** The types of the script tag, and of `headgate/global`: `window.headgate`. */
import type * as live from "./backbone.js";
import type * as inbox from "./inbox.js";
import type * as client from "./index.js";

/** Everything of `headgate` and `headgate/inbox`, and the Backbone helpers if the page has Backbone. */
export type Global = typeof client & typeof inbox & typeof live;

declare global {
  /** Defined by the script. */
  const headgate: Global;
  interface Window {
    readonly headgate: Global;
  }
}
