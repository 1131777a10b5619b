/** The types of `headgate/vue`. */
import type { ComputedRef, MaybeRefOrGetter, ShallowRef } from "vue";
import type { AnyTopics, ConnectOptions, Gate, HandlerOf, PayloadOf, Status, Subscribable, SubscribeOptions } from "./index.js";
import type { PresenceSnapshot } from "./presence.js";
import type { CollectionOptions, CollectionSnapshot, CollectionStore, EventsSnapshot, EventsStoreOptions, PresenceStoreOptions, Store } from "./store.js";

/** Each field of a snapshot as a ref. */
export type Refs<Snapshot> = { readonly [Field in keyof Snapshot]: ComputedRef<Snapshot[Field]> };

/** A live collection as it stands. */
export type LiveCollection<Item extends object = any> = Refs<CollectionSnapshot<Item>> & { readonly reload: () => void; readonly publish: CollectionStore<Item>["publish"] };

/** Nothing more to ask of a pattern that meets a topic of the map. */
type Met<Topics, Pattern extends string> = [Pattern] extends [Subscribable<Topics, Pattern>] ? unknown : Subscribable<Topics, Pattern>;

/** The composables, for an application's topics. */
export interface Hooks<Topics = AnyTopics> {
  /** The gate that was provided above. */
  useGate: () => Gate<Topics>;
  /** The connection in one word. */
  useGateStatus: () => Readonly<ShallowRef<Status>>;
  /** The last events of a pattern. */
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
  /** Plain objects, kept in step by events. */
  useLiveCollection: <Item extends object = any>(
    topic: MaybeRefOrGetter<string>,
    options?: MaybeRefOrGetter<CollectionOptions<Item> | undefined>,
  ) => LiveCollection<Item>;
  /** Who is in a topic, and this user too while the component is mounted. */
  usePresence: <Meta = any>(topic: MaybeRefOrGetter<string | null>, options?: MaybeRefOrGetter<PresenceStoreOptions<Meta> | undefined>) => Refs<PresenceSnapshot<Meta>> & { readonly update: (meta: Meta | null) => void };
}

/** `app.use(gatePlugin, gate)` gives a gate to all components. */
export const gatePlugin: { install(app: { provide: (key: any, value: any) => unknown }, gate: Gate<any>): void };
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
/** An inbox as it stands. Its actions are the inbox's own. */
export function useInbox<Snapshot>(inbox: Store<Snapshot>): ShallowRef<Snapshot>;
/** The composables, with the types of your topics. */
export function hooksFor<Topics>(): Hooks<Topics>;
