/** The types of `headgate/tabs`. */
import type { AnyTopics, ConnectOptions, Gate, HeadgateEvent } from "./index.js";

declare module "./index.js" {
  interface LifecycleEvents {
    /** `gate.tabs.role` has changed. */
    "tabs:change": [change: { role: Role }];
  }
}

/** Options of `connect`. */
export interface TabsOptions extends ConnectOptions {
  /** The name of the user. Tabs whose tokens are not JWTs share only if they have one. */
  user?: string | undefined;
}

/** `leading`: this tab has the connection. `following`: another tab has it. `alone`: no tab leads, or this one cannot share. */
export type Role = "leading" | "following" | "alone";

/** This tab among the others. */
export interface Tabs {
  readonly role: Role;
  /** Decide which tab acts on an event, such as to show a toast. Resolved with `true` in at most one of the tabs that are awake. Visible tabs come before hidden ones. */
  claim(event: HeadgateEvent): Promise<boolean>;
}

/** A gate over the connection that all tabs share. */
export type TabsGate<Topics = AnyTopics> = Gate<Topics> & { readonly tabs: Tabs };

/** Connect to a gateway over one connection for all tabs of this origin and user. Where the browser cannot share, each tab has its own connection. */
export function connect<Topics = AnyTopics>(url?: string | undefined, options?: TabsOptions): TabsGate<Topics>;
