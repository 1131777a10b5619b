/** The types of `headgate/presence`. */
import type { Dispatcher, Gate, HeadgateError } from "./index.js";

/** A user who is in a topic now. */
export interface Member<Meta = any> {
  readonly user: string;
  /** The number of tabs and devices in the topic, over all gateways. */
  readonly connections: number;
  /** When the user entered, in milliseconds since 1970. */
  readonly since: number;
  /** What a page of the user has set last, or `null`. */
  readonly meta: Meta;
}

/** `waiting`: there is no connection, or the client asks again soon; known members stay. `loading`: the members are being read. `live`: all members are known. */
export type PresenceStatus = "waiting" | "loading" | "live" | "refused" | "closed";

/** A room as it stands. */
export interface PresenceSnapshot<Meta = any> {
  /** Sorted by name. */
  readonly members: readonly Member<Meta>[];
  readonly status: PresenceStatus;
  /** Why the gateway refuses the room, or its latest temporary refusal. */
  readonly error: HeadgateError | null;
}

declare module "./index.js" {
  interface LifecycleEvents {
    /** A room: a user has entered since the members were first read. */
    "member:join": [member: Member];
    /** A room: the last connection of a user has left. */
    "member:leave": [member: Member];
    /** A room: the connections or the `meta` of a member have changed. */
    "member:change": [member: Member, previous: Member];
    /** A room: the gateway refuses it. */
    "presence:error": [error: HeadgateError];
    /** A room: once for all changes of a turn. */
    change: [snapshot: PresenceSnapshot];
  }
}

/** Options of presence. */
export interface PresenceOptions<Meta = any> {
  /** A JSON value of this user that all members see. */
  meta?: Meta | undefined;
  /** Default `true`: be a member. `false`: only watch. */
  enter?: boolean | undefined;
}

/** The members of a topic. It triggers `member:join`, `member:leave`, `member:change`, `change` and `presence:error`. */
export class Room<Meta = any> extends Dispatcher {
  /** Only `presence` makes rooms. */
  private constructor();
  readonly topic: string;
  readonly status: PresenceStatus;
  readonly error: HeadgateError | null;
  /** Sorted by name. */
  readonly members: readonly Member<Meta>[];
  get(user: string): Member<Meta> | undefined;
  /** Replace this user's `meta`, and enter if the room only watched. `null` clears it. Throws `not_serializable` or `payload_too_large`. */
  update(meta: Meta | null): void;
  /** Close this room. The page leaves the topic when all its rooms of this gate are closed. */
  close(): void;
  /** Call a listener after each new snapshot. Returns the function that ends this. */
  subscribe: (listener: () => void) => () => void;
  getSnapshot: () => PresenceSnapshot<Meta>;
  getServerSnapshot: () => PresenceSnapshot<Meta>;
}

/** Enter a topic, or only watch it, until this room is closed. All rooms of a gate for a topic share one presence. Throws `invalid_topic`, `not_serializable` or `payload_too_large`. */
export function presence<Meta = any>(gate: Gate<any>, topic: string, options?: PresenceOptions<Meta>): Room<Meta>;
