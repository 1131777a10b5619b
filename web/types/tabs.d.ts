/** The types of `headgate/tabs`. */
import type { AnyTopics, ConnectOptions, Gate, HeadgateEvent } from "./index.js";

declare module "./index.js" {
  interface LifecycleEvents {
    "tabs:change": [change: { role: Role }];
  }
}

/** Options of `connect`. */
export interface TabsOptions extends ConnectOptions {
  /** Tells users apart where their tokens are no JWTs. */
  user?: string | undefined;
}

/** `leading`: this tab has the connection. `alone`: no tab leads, or this one cannot share. */
export type Role = "leading" | "following" | "alone";

/** This tab among the others. */
export interface Tabs {
  readonly role: Role;
  /** Whether this tab, and no other, is to act on an event. */
  claim(event: HeadgateEvent): Promise<boolean>;
}

/** A gate on the connection that all tabs share. */
export type TabsGate<Topics = AnyTopics> = Gate<Topics> & { readonly tabs: Tabs };

/** Connect to a gateway, over one connection for all tabs. */
export function connect<Topics = AnyTopics>(url?: string | undefined, options?: TabsOptions): TabsGate<Topics>;
