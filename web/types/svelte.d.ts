/** The types of `headgate/svelte`. */
import type { AnyTopics, ConnectOptions, Gate, HandlerOf, PayloadOf, Status, Subscribable, SubscribeOptions } from "./index.js";
import type { PresenceSnapshot } from "./presence.js";
import type { CollectionOptions, CollectionSnapshot, CollectionStore, EventsSnapshot, EventsStoreOptions, PresenceStoreOptions, Store } from "./store.js";

/** A store with Svelte's contract. */
export interface Readable<Value> {
  /** `run` is called at once, and with each new value. */
  subscribe: (run: (value: Value) => void) => () => void;
}

/** A live collection as it stands. */
export interface LiveCollection<Item extends object = any> extends Readable<CollectionSnapshot<Item>> {
  /** Load again now. */
  reload: () => void;
  /** Publish an event and show its change at once. The change is undone when the publish is refused. */
  publish: CollectionStore<Item>["publish"];
}

/** The functions for components, for an application's topics. */
export interface Hooks<Topics = AnyTopics> {
  /** The gate that was provided above. */
  useGate: () => Gate<Topics>;
  /** The state of the connection. */
  useGateStatus: () => Readable<Status>;
  /** The last events of a pattern, oldest first. `null`: none, as with `enabled: false`. */
  useEvents: <Pattern extends string>(pattern: (Pattern & Subscribable<Topics, Pattern>) | null, options?: EventsStoreOptions) => Readable<EventsSnapshot<PayloadOf<Topics, Pattern>>>;
  /** Call a handler for each event while the component is mounted. */
  useSubscription: <Pattern extends string>(pattern: (Pattern & Subscribable<Topics, Pattern>) | null, handler: HandlerOf<Topics, Pattern>, options?: SubscribeOptions & { enabled?: boolean | undefined }) => void;
  /** A collection of plain objects that events keep up to date. */
  useLiveCollection: <Item extends object = any>(topic: string, options?: CollectionOptions<Item>) => LiveCollection<Item>;
  /** The members of a topic, among them this user while the store has a subscriber. `null`: none. */
  usePresence: <Meta = any>(topic: string | null, options?: PresenceStoreOptions<Meta>) => Readable<PresenceSnapshot<Meta>> & { update: (meta: Meta | null) => void };
}

/** Provide a gate to this component and those below. It is your own, which is never closed, or one that is connected to an address while this component is mounted. */
export function provideGate<Topics = AnyTopics>(source?: Gate<Topics> | string | undefined, options?: ConnectOptions): Gate<Topics>;
/** The gate that was provided above. */
export const useGate: Hooks["useGate"];
/** The state of the connection. */
export const useGateStatus: Hooks["useGateStatus"];
/** The last events of a pattern, oldest first. `null`: none, as with `enabled: false`. */
export const useEvents: Hooks["useEvents"];
/** Call a handler for each event while the component is mounted. */
export const useSubscription: Hooks["useSubscription"];
/** A collection of plain objects that events keep up to date. */
export const useLiveCollection: Hooks["useLiveCollection"];
/** The members of a topic, among them this user while the store has a subscriber. `null`: none. */
export const usePresence: Hooks["usePresence"];
/** Turn a store of `headgate/store` into one with Svelte's contract. */
export function readable<Value>(store: Store<Value>): Readable<Value>;
/** The functions, with the types of your topics. */
export function hooksFor<Topics>(): Hooks<Topics>;
