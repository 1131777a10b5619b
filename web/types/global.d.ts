/** The types of the script tag, and of `headgate/global`: `window.headgate`. */
import type * as live from "./backbone.js";
import type * as inbox from "./inbox.js";
import type * as client from "./index.js";

/** All of `headgate` and of `headgate/inbox`, and the helpers for Backbone in a page that has it. */
export type Global = typeof client & typeof inbox & typeof live;

declare global {
  /** Defined by the script. */
  const headgate: Global;
  interface Window {
    readonly headgate: Global;
  }
}
