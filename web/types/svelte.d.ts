/** The types of `headgate/svelte`. */
import type { AnyTopics, ConnectOptions, Gate, HandlerOf, PayloadOf, Status, Subscribable, SubscribeOptions } from "./index.js";
import type { PresenceSnapshot } from "./presence.js";
import type { CollectionOptions, CollectionSnapshot, CollectionStore, EventsSnapshot, EventsStoreOptions, PresenceStoreOptions, Store } from "./store.js";

/** A store with the contract of Svelte's. */
export interface Readable<Value> {
  /** Called at once, and with each new value. */
  subscribe: (run: (value: Value) => void) => () => void;
}

/** A live collection as it stands. */
export interface LiveCollection<Item extends object = any> extends Readable<CollectionSnapshot<Item>> {
  /** Load again now. */
  reload: () => void;
  /** Publish, and show at once what the event will change. */
  publish: CollectionStore<Item>["publish"];
}

/** The functions for components, for an application's topics. */
export interface Hooks<Topics = AnyTopics> {
  /** The gate that was provided above. */
  useGate: () => Gate<Topics>;
  /** The connection in one word. */
  useGateStatus: () => Readable<Status>;
  /** The last events of a pattern. */
  useEvents: <Pattern extends string>(pattern: (Pattern & Subscribable<Topics, Pattern>) | null, options?: EventsStoreOptions) => Readable<EventsSnapshot<PayloadOf<Topics, Pattern>>>;
  /** Call a handler for each event. */
  useSubscription: <Pattern extends string>(pattern: (Pattern & Subscribable<Topics, Pattern>) | null, handler: HandlerOf<Topics, Pattern>, options?: SubscribeOptions & { enabled?: boolean | undefined }) => void;
  /** Plain objects, kept in step by events. */
  useLiveCollection: <Item extends object = any>(topic: string, options?: CollectionOptions<Item>) => LiveCollection<Item>;
  /** Who is in a topic, and this user too while the component is mounted. */
  usePresence: <Meta = any>(topic: string | null, options?: PresenceStoreOptions<Meta>) => Readable<PresenceSnapshot<Meta>> & { update: (meta: Meta | null) => void };
}

/** Give a gate to this component and those below. */
export function provideGate<Topics = AnyTopics>(source?: Gate<Topics> | string | undefined, options?: ConnectOptions): Gate<Topics>;
/** The gate that was provided above. */
export const useGate: Hooks["useGate"];
/** The connection in one word. */
export const useGateStatus: Hooks["useGateStatus"];
/** The last events of a pattern. */
export const useEvents: Hooks["useEvents"];
/** Call a handler for each event. */
export const useSubscription: Hooks["useSubscription"];
/** Plain objects, kept in step by events. */
export const useLiveCollection: Hooks["useLiveCollection"];
/** Who is in a topic, and this user too while the component is mounted. */
export const usePresence: Hooks["usePresence"];
/** Make a store of headgate/store one of Svelte's. */
export function readable<Value>(store: Store<Value>): Readable<Value>;
/** The functions, with the types of your topics. */
export function hooksFor<Topics>(): Hooks<Topics>;
