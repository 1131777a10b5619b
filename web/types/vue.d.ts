/** The types of `headgate/vue`. */
import type { ComputedRef, MaybeRefOrGetter, ShallowRef } from "vue";
import type { AnyTopics, ConnectOptions, Gate, HandlerOf, PayloadOf, Status, Subscribable, SubscribeOptions } from "./index.js";
import type { PresenceSnapshot } from "./presence.js";
import type { CollectionOptions, CollectionSnapshot, CollectionStore, EventsSnapshot, EventsStoreOptions, PresenceStoreOptions, Store } from "./store.js";

/** Each field of a snapshot as a ref. */
export type Refs<Snapshot> = { readonly [Field in keyof Snapshot]: ComputedRef<Snapshot[Field]> };

/** A live collection as it stands. */
export type LiveCollection<Item extends object = any> = Refs<CollectionSnapshot<Item>> & { readonly reload: () => void; readonly publish: CollectionStore<Item>["publish"] };

/** `unknown` for a pattern that has a topic in common with the map. */
type Met<Topics, Pattern extends string> = [Pattern] extends [Subscribable<Topics, Pattern>] ? unknown : Subscribable<Topics, Pattern>;

/** The composables, for an application's topics. */
export interface Hooks<Topics = AnyTopics> {
  /** The gate that was provided above. */
  useGate: () => Gate<Topics>;
  /** The state of the connection. */
  useGateStatus: () => Readonly<ShallowRef<Status>>;
  /** The last events of a pattern, oldest first. `null`: not known yet, as with `enabled: false`. */
  useEvents: <Pattern extends string>(
    pattern: MaybeRefOrGetter<Pattern | null> & Met<Topics, Pattern>,
    options?: MaybeRefOrGetter<EventsStoreOptions | undefined>,
  ) => Refs<EventsSnapshot<PayloadOf<Topics, Pattern>>>;
  /** Call a handler for each event. */
  useSubscription: <Pattern extends string>(
    pattern: MaybeRefOrGetter<Pattern | null> & Met<Topics, Pattern>,
    handler: HandlerOf<Topics, Pattern>,
    options?: MaybeRefOrGetter<(SubscribeOptions & { enabled?: boolean | undefined }) | undefined>,
  ) => void;
  /** A collection of plain objects that events keep up to date. */
  useLiveCollection: <Item extends object = any>(
    topic: MaybeRefOrGetter<string>,
    options?: MaybeRefOrGetter<CollectionOptions<Item> | undefined>,
  ) => LiveCollection<Item>;
  /** The members of a topic, among them this user while the component is mounted. `null`: no topic yet. */
  usePresence: <Meta = any>(topic: MaybeRefOrGetter<string | null>, options?: MaybeRefOrGetter<PresenceStoreOptions<Meta> | undefined>) => Refs<PresenceSnapshot<Meta>> & { readonly update: (meta: Meta | null) => void };
}

/** `app.use(gatePlugin, gate)` provides your own gate to all components, and never closes it. */
export const gatePlugin: { install(app: { provide: (key: any, value: any) => unknown }, gate: Gate<any>): void };
/** Provide a gate to this component and those below. It is your own, which is never closed, or one that is connected to an address while this component is mounted. */
export function provideGate<Topics = AnyTopics>(source?: Gate<Topics> | string | undefined, options?: ConnectOptions): Gate<Topics>;
/** The gate that was provided above. */
export const useGate: Hooks["useGate"];
/** The state of the connection. */
export const useGateStatus: Hooks["useGateStatus"];
/** The last events of a pattern, oldest first. `null`: not known yet, as with `enabled: false`. */
export const useEvents: Hooks["useEvents"];
/** Call a handler for each event. */
export const useSubscription: Hooks["useSubscription"];
/** A collection of plain objects that events keep up to date. */
export const useLiveCollection: Hooks["useLiveCollection"];
/** The members of a topic, among them this user while the component is mounted. `null`: no topic yet. */
export const usePresence: Hooks["usePresence"];
/** The snapshot of an inbox of `headgate/inbox`, which has the actions. */
export function useInbox<Snapshot>(inbox: Store<Snapshot>): ShallowRef<Snapshot>;
/** The composables, with the types of your topics. */
export function hooksFor<Topics>(): Hooks<Topics>;
