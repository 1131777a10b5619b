/** The types of `headgate/store`. */
import type { PresenceOptions, PresenceSnapshot } from "./presence.js";
import type { Gate, HeadgateError, HeadgateEvent, PayloadOf, Position, Receipt, Status, Subscribable, SubscribeOptions, SubscriptionState, ToldGap } from "./index.js";

/** A value that changes, with the contract of React's `useSyncExternalStore`. It works while it has listeners. */
export interface Store<Snapshot> {
  /** Call a listener once for all changes of a turn. Returns the function that ends this. */
  subscribe: (listener: () => void) => () => void;
  /** The present snapshot. It is the same object until something changes. */
  getSnapshot: () => Snapshot;
  /** The snapshot that a server renders, and that a page begins with. */
  getServerSnapshot: () => Snapshot;
}

/** Options of a store of events. */
export interface EventsStoreOptions extends SubscribeOptions {
  /** The most events, default 100. The oldest are dropped. */
  limit?: number | undefined;
  /** `false`: subscribe to nothing. */
  enabled?: boolean | undefined;
}

/** The last events of a pattern. */
export interface EventsSnapshot<Data = any> {
  /** Oldest first. */
  readonly events: readonly HeadgateEvent<Data>[];
  /** Lost events, as far as their number is known. */
  readonly missed: number;
  /** The latest gap that is not being repaired. */
  readonly gap: ToldGap | null;
  readonly status: SubscriptionState;
  /** Why the handlers get no events: the gateway refuses the pattern or the client. */
  readonly error: HeadgateError | null;
}

/** `loading`: there is no answer yet. `behind`: events may be missing in `items`. `current`: none is missing. `failed`: `load` fails, or the gateway refuses the pattern. */
export type CollectionStatus = "loading" | "behind" | "current" | "failed";

/** The answer of `load`. `position`: a position of the log that the server read before it read the items. */
export type Loaded<Item> = readonly Item[] | { items: readonly Item[]; position?: Position | null | undefined };

/** Options of a live collection. */
export interface CollectionOptions<Item extends object = any> {
  /** Fetches all items from the server. */
  load?: ((how: { signal: AbortSignal }) => Loaded<Item> | Promise<Loaded<Item>>) | undefined;
  /** Items that came with the page. */
  initial?: readonly Item[] | undefined;
  /** Default `<topic>.*.*`. */
  pattern?: string | undefined;
  /** Reads the change from an event, instead of the convention `<topic>.<id>.<verb>`. */
  mapping?: ((event: HeadgateEvent<any>) => ItemChange<Item> | null | undefined) | undefined;
  /** Default `id`. */
  idAttribute?: string | undefined;
  /** Default `version`. An event whose version is not newer than the item's changes nothing. */
  versionAttribute?: string | undefined;
  /** An outbox of `headgate/offline`, which keeps what `publish` sends while there is no connection. */
  outbox?: { publish: (topic: string, data: any, options: { id: string }) => Promise<Receipt> } | undefined;
  /** The most items, default 10000. Beyond it the first are dropped, and counted in `dropped`. */
  limit?: number | undefined;
  /** A load after a loss waits a random time up to this, default 1000. */
  resyncSpreadMs?: number | undefined;
}

/** A change of an item that an event brings. */
export interface ItemChange<Item extends object = any> {
  /** `upsert`: add or update. `merge`: update an existing item. */
  op: "upsert" | "merge" | "remove" | "ignore";
  id?: any;
  attributes?: Partial<Item> | undefined;
}

/** A live collection as it stands. */
export interface CollectionSnapshot<Item extends object = any> {
  readonly items: readonly Item[];
  readonly status: CollectionStatus;
  /** Why `load` fails or the gateway refuses the pattern. `null`: neither. */
  readonly error: any;
  /** The number of items dropped beyond the limit. */
  readonly dropped: number;
  /** The ids, as text, of items that a publish under way has changed. */
  readonly pending: readonly string[];
}

/** A store of a live collection. */
export interface CollectionStore<Item extends object = any> extends Store<CollectionSnapshot<Item>> {
  /** Load again now, if the store has listeners. */
  reload: () => void;
  /** Publish an event and show its change at once. The change is undone when the publish is refused. */
  publish: (topic: string, data: any) => Promise<Receipt>;
}

/** The last events of a pattern, in log order. `null`: not known yet, as with `enabled: false`. Throws `invalid_pattern`. */
export function eventsStore<Topics, Pattern extends string>(
  gate: Gate<Topics>,
  pattern: (Pattern & Subscribable<Topics, Pattern>) | null,
  options?: EventsStoreOptions,
): Store<EventsSnapshot<PayloadOf<Topics, Pattern>>>;
/** A collection of plain objects that events keep up to date. `topic` is the prefix of the topics, such as `orders`. Throws `invalid_pattern`. */
export function collectionStore<Item extends object = any>(gate: Gate<any>, topic: string, options?: CollectionOptions<Item>): CollectionStore<Item>;
/** Options of `presenceStore`. */
export interface PresenceStoreOptions<Meta = any> extends PresenceOptions<Meta> {
  /** `false`: neither enter nor watch. */
  enabled?: boolean | undefined;
}

/** The members of a topic, which this user enters while the store has listeners. `update` replaces this user's `meta`. Throws `invalid_topic`. */
export function presenceStore<Meta = any>(gate: Gate<any>, topic: string | null, options?: PresenceStoreOptions<Meta>): Store<PresenceSnapshot<Meta>> & { update: (meta: Meta | null) => void };
/** The state of the connection. */
export function statusStore(gate: Gate<any>): Store<Status>;
