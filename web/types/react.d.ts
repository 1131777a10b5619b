/** The types of `headgate/react`. */
import type { ReactElement, ReactNode } from "react";
import type { AnyTopics, ConnectOptions, Gate, HandlerOf, PayloadOf, Status, Subscribable, SubscribeOptions } from "./index.js";
import type { PresenceSnapshot } from "./presence.js";
import type { CollectionOptions, CollectionSnapshot, CollectionStore, EventsSnapshot, EventsStoreOptions, PresenceStoreOptions, Store } from "./store.js";

/** A gate of the application's, or the address of one. */
export interface GateProviderProps {
  /** The application's own; it is not closed here. */
  gate?: Gate<any> | undefined;
  /** Connected while this is mounted, default the page's origin. */
  url?: string | undefined;
  /** Read when it connects; a `token` function is always the latest. */
  options?: ConnectOptions | undefined;
  children?: ReactNode;
}

/** Options of useLiveCollection. */
export interface LiveCollectionOptions<Item extends object = any> extends CollectionOptions<Item> {
  /** Another key is another collection. */
  key?: string | undefined;
}

/** A live collection as it stands. */
export interface LiveCollection<Item extends object = any> extends CollectionSnapshot<Item> {
  /** Load again now. */
  readonly reload: () => void;
  /** Publish, and show at once what the event will change. */
  readonly publish: CollectionStore<Item>["publish"];
}

/** The hooks, for an application's topics. */
export interface Hooks<Topics = AnyTopics> {
  /** The gate of the GateProvider above. */
  useGate: () => Gate<Topics>;
  /** The connection in one word. */
  useGateStatus: () => Status;
  /** The last events of a pattern. */
  useEvents: <Pattern extends string, Part = EventsSnapshot<PayloadOf<Topics, Pattern>>>(
    pattern: (Pattern & Subscribable<Topics, Pattern>) | null,
    options?: EventsStoreOptions & {
      /** What this component needs: it is rendered when that is another value. */
      select?: ((snapshot: EventsSnapshot<PayloadOf<Topics, Pattern>>) => Part) | undefined;
    },
  ) => Part;
  /** Call a handler for each event, without rendering. */
  useSubscription: <Pattern extends string>(pattern: (Pattern & Subscribable<Topics, Pattern>) | null, handler: HandlerOf<Topics, Pattern>, options?: SubscribeOptions & { enabled?: boolean | undefined }) => void;
  /** Plain objects, kept in step by events. */
  useLiveCollection: <Item extends object = any>(topic: string, options?: LiveCollectionOptions<Item>) => LiveCollection<Item>;
  /** Who is in a topic, and this user too while the component is mounted. */
  usePresence: <Meta = any>(topic: string | null, options?: PresenceStoreOptions<Meta>) => PresenceSnapshot<Meta> & { readonly update: (meta: Meta | null) => void };
}

/** Give a gate to the components below. */
export function GateProvider(props: GateProviderProps): ReactElement;
/** The gate of the GateProvider above. */
export const useGate: Hooks["useGate"];
/** The connection in one word. */
export const useGateStatus: Hooks["useGateStatus"];
/** The last events of a pattern. */
export const useEvents: Hooks["useEvents"];
/** Call a handler for each event, without rendering. */
export const useSubscription: Hooks["useSubscription"];
/** Plain objects, kept in step by events. */
export const useLiveCollection: Hooks["useLiveCollection"];
/** Who is in a topic, and this user too while the component is mounted. */
export const usePresence: Hooks["usePresence"];
/** An inbox as it stands. Its actions are the inbox's own. */
export function useInbox<Snapshot>(inbox: Store<Snapshot>): Snapshot;
/** The hooks, with the types of your topics. */
export function hooksFor<Topics>(): Hooks<Topics>;
