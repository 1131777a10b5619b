/** The types of `headgate/presence`. */
import type { Dispatcher, Gate, HeadgateError } from "./index.js";

/** A user who is in a topic now. */
export interface Member<Meta = any> {
  readonly user: string;
  /** Tabs and devices, over all gateways. */
  readonly connections: number;
  /** Milliseconds since 1970. */
  readonly since: number;
  /** What the user's page says about it. */
  readonly meta: Meta;
}

/** `waiting`: there is no connection. The members that were known stay. */
export type PresenceStatus = "waiting" | "loading" | "live" | "refused" | "closed";

/** A room as it stands. */
export interface PresenceSnapshot<Meta = any> {
  /** By name. */
  readonly members: readonly Member<Meta>[];
  readonly status: PresenceStatus;
  /** Why the gateway refuses it. */
  readonly error: HeadgateError | null;
}

declare module "./index.js" {
  interface LifecycleEvents {
    "member:join": [member: Member];
    "member:leave": [member: Member];
    "member:change": [member: Member, previous: Member];
    "presence:error": [error: HeadgateError];
    /** Of a room, once for all changes of a turn. */
    change: [snapshot: PresenceSnapshot];
  }
}

/** Options of presence. */
export interface PresenceOptions<Meta = any> {
  /** What to say about this user. */
  meta?: Meta | undefined;
  /** Default true: be a member. false: only watch. */
  enter?: boolean | undefined;
}

/** Members of a topic. Triggers `member:join`, `member:leave`, `member:change`, `change`. */
export class Room<Meta = any> extends Dispatcher {
  /** Made by `presence` alone. */
  private constructor();
  readonly topic: string;
  readonly status: PresenceStatus;
  readonly error: HeadgateError | null;
  /** By name. */
  readonly members: readonly Member<Meta>[];
  get(user: string): Member<Meta> | undefined;
  /** Say something else about this user. */
  update(meta: Meta | null): void;
  /** End this room; the page leaves when every room of this topic is closed. */
  close(): void;
  /** Call a listener for each new snapshot; returns the function that ends this. */
  subscribe: (listener: () => void) => () => void;
  getSnapshot: () => PresenceSnapshot<Meta>;
  getServerSnapshot: () => PresenceSnapshot<Meta>;
}

/** Be in a topic, or only watch it, until this room is closed. All rooms of a gate share it. */
export function presence<Meta = any>(gate: Gate<any>, topic: string, options?: PresenceOptions<Meta>): Room<Meta>;
