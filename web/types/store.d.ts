/** The types of `headgate/store`. */
import type { PresenceOptions, PresenceSnapshot } from "./presence.js";
import type { Gate, HeadgateError, HeadgateEvent, PayloadOf, Position, Receipt, Status, Subscribable, SubscribeOptions, SubscriptionState, ToldGap } from "./index.js";

/** A value that changes, as React's useSyncExternalStore takes it. */
export interface Store<Snapshot> {
  /** Call a listener for each new snapshot; returns the function that ends this. */
  subscribe: (listener: () => void) => () => void;
  /** The present snapshot, the same object until there is another. */
  getSnapshot: () => Snapshot;
  /** The one that a server renders. */
  getServerSnapshot: () => Snapshot;
}

/** Options of a store of events. */
export interface EventsStoreOptions extends SubscribeOptions {
  /** Events that are held, default 100. */
  limit?: number | undefined;
  /** `false`: subscribe to nothing. */
  enabled?: boolean | undefined;
}

/** The last events of a pattern. */
export interface EventsSnapshot<Data = any> {
  /** Oldest first. */
  readonly events: readonly HeadgateEvent<Data>[];
  /** Events that will not come, as far as they are numbered. */
  readonly missed: number;
  /** The latest notice of events that do not come by themselves. */
  readonly gap: ToldGap | null;
  readonly status: SubscriptionState;
  /** Why the gateway refuses the pattern. */
  readonly error: HeadgateError | null;
}

/** `behind`: events may be missing. `current`: none are missing. */
export type CollectionStatus = "loading" | "behind" | "current" | "failed";

/** What a load brings; `position`: of the log, read before the items. */
export type Loaded<Item> = readonly Item[] | { items: readonly Item[]; position?: Position | null | undefined };

/** Options of a live collection. */
export interface CollectionOptions<Item extends object = any> {
  /** Brings all items from the server. */
  load?: ((how: { signal: AbortSignal }) => Loaded<Item> | Promise<Loaded<Item>>) | undefined;
  /** Items that came with the page. */
  initial?: readonly Item[] | undefined;
  /** Default `<topic>.*.*`. */
  pattern?: string | undefined;
  /** Reads an event instead of the convention. */
  mapping?: ((event: HeadgateEvent<any>) => ItemChange<Item> | null | undefined) | undefined;
  /** Default `id`. */
  idAttribute?: string | undefined;
  /** Default `version`. */
  versionAttribute?: string | undefined;
  /** Of `headgate/offline`: it keeps what `publish` sends while there is no connection. */
  outbox?: { publish: (topic: string, data: any, options: { id: string }) => Promise<Receipt> } | undefined;
  /** Items that are held, default 10000. */
  limit?: number | undefined;
  /** Default 1000: a load after a gap waits up to this. */
  resyncSpreadMs?: number | undefined;
}

/** A change of an item that an event brings. */
export interface ItemChange<Item extends object = any> {
  /** `upsert`: add or update. `merge`: update an item that is known. */
  op: "upsert" | "merge" | "remove" | "ignore";
  id?: any;
  attributes?: Partial<Item> | undefined;
}

/** A live collection as it stands. */
export interface CollectionSnapshot<Item extends object = any> {
  readonly items: readonly Item[];
  readonly status: CollectionStatus;
  /** Why it could not be loaded, or the gateway refuses the pattern. */
  readonly error: any;
  /** Items beyond the limit. */
  readonly dropped: number;
  /** Ids, as text, of items that a publish under way has changed. */
  readonly pending: readonly string[];
}

/** A store of a live collection. */
export interface CollectionStore<Item extends object = any> extends Store<CollectionSnapshot<Item>> {
  /** Load again now, if anybody listens. */
  reload: () => void;
  /** Publish, and show at once what the event will change; taken back when it is refused. */
  publish: (topic: string, data: any) => Promise<Receipt>;
}

/** The last events of a pattern, in log order. */
export function eventsStore<Topics, Pattern extends string>(
  gate: Gate<Topics>,
  pattern: (Pattern & Subscribable<Topics, Pattern>) | null,
  options?: EventsStoreOptions,
): Store<EventsSnapshot<PayloadOf<Topics, Pattern>>>;
/** Plain objects, kept in step by events. */
export function collectionStore<Item extends object = any>(gate: Gate<any>, topic: string, options?: CollectionOptions<Item>): CollectionStore<Item>;
/** Options of a store of presence. */
export interface PresenceStoreOptions<Meta = any> extends PresenceOptions<Meta> {
  /** `false`: enter and watch nothing. */
  enabled?: boolean | undefined;
}

/** The members of a topic, entered while the store has listeners. `update` sets `meta`. */
export function presenceStore<Meta = any>(gate: Gate<any>, topic: string | null, options?: PresenceStoreOptions<Meta>): Store<PresenceSnapshot<Meta>> & { update: (meta: Meta | null) => void };
/** The connection in one word. */
export function statusStore(gate: Gate<any>): Store<Status>;
