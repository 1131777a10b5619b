/** The types of `headgate/react`. */
import type { ReactElement, ReactNode } from "react";
import type { AnyTopics, ConnectOptions, Gate, HandlerOf, PayloadOf, Status, Subscribable, SubscribeOptions } from "./index.js";
import type { PresenceSnapshot } from "./presence.js";
import type { CollectionOptions, CollectionSnapshot, CollectionStore, EventsSnapshot, EventsStoreOptions, PresenceStoreOptions, Store } from "./store.js";

/** Your own gate, or the address of a gateway. */
export interface GateProviderProps {
  /** Your own gate. The provider never closes it. */
  gate?: Gate<any> | undefined;
  /** The address to which the provider connects while it is mounted, default the page's origin. */
  url?: string | undefined;
  /** Options of `connect`, read when the provider connects. It always calls the `token` function of the latest render. */
  options?: ConnectOptions | undefined;
  children?: ReactNode;
}

/** Options of useLiveCollection. */
export interface LiveCollectionOptions<Item extends object = any> extends CollectionOptions<Item> {
  /** A different key makes a new collection, which calls `load` again. */
  key?: string | undefined;
}

/** A live collection as it stands. */
export interface LiveCollection<Item extends object = any> extends CollectionSnapshot<Item> {
  /** Load again now. */
  readonly reload: () => void;
  /** Publish an event and show its change at once. The change is undone when the publish is refused. */
  readonly publish: CollectionStore<Item>["publish"];
}

/** The hooks, for an application's topics. */
export interface Hooks<Topics = AnyTopics> {
  /** The gate of the GateProvider above. */
  useGate: () => Gate<Topics>;
  /** The state of the connection. */
  useGateStatus: () => Status;
  /** The last events of a pattern, oldest first. `null`: not known yet, as with `enabled: false`. */
  useEvents: <Pattern extends string, Part = EventsSnapshot<PayloadOf<Topics, Pattern>>>(
    pattern: (Pattern & Subscribable<Topics, Pattern>) | null,
    options?: EventsStoreOptions & {
      /** Picks what the component needs. The component renders only when that value changes. */
      select?: ((snapshot: EventsSnapshot<PayloadOf<Topics, Pattern>>) => Part) | undefined;
    },
  ) => Part;
  /** Call the handler of the latest render for each event, without rendering. */
  useSubscription: <Pattern extends string>(pattern: (Pattern & Subscribable<Topics, Pattern>) | null, handler: HandlerOf<Topics, Pattern>, options?: SubscribeOptions & { enabled?: boolean | undefined }) => void;
  /** A collection of plain objects that events keep up to date. */
  useLiveCollection: <Item extends object = any>(topic: string, options?: LiveCollectionOptions<Item>) => LiveCollection<Item>;
  /** The members of a topic, among them this user while the component is mounted. `null`: no topic yet. */
  usePresence: <Meta = any>(topic: string | null, options?: PresenceStoreOptions<Meta>) => PresenceSnapshot<Meta> & { readonly update: (meta: Meta | null) => void };
}

/** Give a gate to the components below. */
export function GateProvider(props: GateProviderProps): ReactElement;
/** The gate of the GateProvider above. */
export const useGate: Hooks["useGate"];
/** The state of the connection. */
export const useGateStatus: Hooks["useGateStatus"];
/** The last events of a pattern, oldest first. `null`: not known yet, as with `enabled: false`. */
export const useEvents: Hooks["useEvents"];
/** Call the handler of the latest render for each event, without rendering. */
export const useSubscription: Hooks["useSubscription"];
/** A collection of plain objects that events keep up to date. */
export const useLiveCollection: Hooks["useLiveCollection"];
/** The members of a topic, among them this user while the component is mounted. `null`: no topic yet. */
export const usePresence: Hooks["usePresence"];
/** The snapshot of an inbox of `headgate/inbox`, which has the actions. */
export function useInbox<Snapshot>(inbox: Store<Snapshot>): Snapshot;
/** The hooks, with the types of your topics. */
export function hooksFor<Topics>(): Hooks<Topics>;
