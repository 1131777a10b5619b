/** The public types (web/types) beside those that the sources are checked with: a field that one has and the other lacks does not compile. */
import type { CollectionOptions, CollectionSnapshot } from "../../src/stores/collection-store.js";
import type { ConnectOptions } from "../../src/connect.js";
import type { Status } from "../../src/connection/connection-state.js";
import type { Standing } from "../../src/session/cursor.js";
import type { EventsSnapshot, EventsStoreOptions } from "../../src/stores/events-store.js";
import type { Fate, Range } from "../../src/session/gaps.js";
import type { HeadgateEvent, Receipt, SubscribeOptions, Subscription } from "../../src/gate.js";
import type { LoadOptions, LoadStatus } from "../../src/load.js";
import type { Change, LiveOptions } from "../../src/live/rules.js";
import type { Backpressure, Gap, Limits, Overflow, Position, Since, Welcome } from "../../src/language/protocol.js";
import type { State } from "../../src/session/session.js";
import type { StreamOptions } from "../../src/events.js";
import type { SubscriptionState } from "../../src/subscriptions/subscription.js";
import type { Role, Tabs, TabsOptions } from "../../src/tabs/connect.js";
import type * as live from "../../types/backbone.js";
import type * as types from "../../types/index.js";
import type * as stores from "../../types/store.js";
import type * as tabs from "../../types/tabs.js";

/** The fields that only one of two types has, those of a union apart. */
type Odd<A, B> = Exclude<keyof A, keyof B> | Exclude<keyof B, keyof A>;
/** The words that only one of two unions has. */
type OddWords<A, B> = Exclude<A, B> | Exclude<B, A>;

/** Compiles if there is none. */
const none = <_Odd extends never>() => {};

none<Odd<ConnectOptions, types.ConnectOptions>>();
none<Odd<SubscribeOptions, types.SubscribeOptions>>();
none<Odd<StreamOptions, types.EventsOptions>>();
none<Odd<LoadOptions, types.LoadOptions>>();
none<OddWords<LoadStatus, types.LoadStatus>>();
none<Odd<Subscription, types.Subscription>>();
none<Odd<HeadgateEvent, types.HeadgateEvent>>();
none<Odd<Receipt, types.Receipt>>();
none<Odd<State, types.State>>();
none<Odd<Range, types.Range>>();
none<Odd<Gap & Fate, Omit<types.ToldGap, "where">>>();
none<Odd<Backpressure, Omit<types.Backpressure, "where">>>();
none<Odd<Position, types.Position>>();
none<Odd<Limits, types.Limits>>();
none<Odd<Welcome, types.Welcome>>();
none<Odd<LiveOptions, live.LiveOptions>>();
none<Odd<Change, live.Change>>();
none<Odd<EventsSnapshot, stores.EventsSnapshot>>();
none<Odd<EventsStoreOptions, stores.EventsStoreOptions>>();
none<Odd<CollectionOptions, stores.CollectionOptions>>();
none<Odd<CollectionSnapshot, stores.CollectionSnapshot>>();
none<OddWords<CollectionSnapshot["status"], stores.CollectionStatus>>();
none<Odd<TabsOptions, tabs.TabsOptions>>();
none<Odd<Tabs, tabs.Tabs>>();
none<OddWords<Role, tabs.Role>>();
none<OddWords<Status, types.Status>>();
none<OddWords<Standing, types.Standing>>();
none<OddWords<SubscriptionState, types.SubscriptionState>>();
none<OddWords<Overflow, types.Overflow>>();
none<OddWords<Gap["reason"], types.Gap["reason"]>>();
none<OddWords<State["connection"], types.ConnectionState>>();

// Values go both ways, so the fields have the same types.
declare const ours: { state: State; event: HeadgateEvent; gap: Gap; receipt: Receipt; welcome: Welcome; since: Since; change: Change };
declare const theirs: { state: types.State; event: types.HeadgateEvent; gap: types.Gap; receipt: types.Receipt; welcome: types.Welcome; since: types.Since; change: live.Change };
export const there: typeof theirs = ours;
export const back: typeof ours = theirs;
