/** Stores, hooks and composables with strict settings: each line compiles, or must not and says so. */
import type { HeadgateEvent, Status } from "headgate";
import { connect } from "headgate";
import * as react from "headgate/react";
import { collectionStore, eventsStore, statusStore } from "headgate/store";
import * as svelte from "headgate/svelte";
import * as vue from "headgate/vue";

/** Compiles if two types are one. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const sure = <_ extends true>() => {};

interface Shipped {
  carrier: string;
}
interface Order {
  id: number;
  status: string;
}
interface Topics {
  "orders.*.shipped": Shipped;
  "orders.*.created": Order;
}
const gate = connect<Topics>("https://example.com");
const maybe: number | undefined = Math.random() < 0.5 ? undefined : 7;
const load = async ({ signal }: { signal: AbortSignal }) => (await (await fetch("/orders", { signal })).json()) as Order[];

// Stores.
const { events, missed } = eventsStore(gate, "orders.*.shipped", { limit: maybe, overflow: "drop" }).getSnapshot();
sure<Same<typeof events, readonly HeadgateEvent<Shipped>[]>>();
const status = statusStore(gate).getSnapshot();
sure<Same<typeof status, Status>>();
const orders = collectionStore<Order>(gate, "orders", { load, initial: [{ id: 1, status: "new" }], idAttribute: "id" });
sure<Same<ReturnType<typeof orders.getSnapshot>["items"], readonly Order[]>>();
orders.reload();
orders.subscribe(() => missed.toFixed())();
// @ts-expect-error a snapshot is not to be changed
orders.getSnapshot().items.push({ id: 2, status: "new" });
// @ts-expect-error a policy of another name
eventsStore(gate, "orders.#", { overflow: "all" });

// React.
const hooks = react.hooksFor<Topics>();
export function Board() {
  const { events: shipped, error } = hooks.useEvents("orders.42.shipped", { limit: 10 });
  const { items, reload, status } = hooks.useLiveCollection<Order>("orders", { load, key: "mine" });
  const count = hooks.useEvents("orders.42.shipped", { select: ({ events }) => events.length, enabled: Boolean(shipped) });
  hooks.useSubscription(error ? null : "orders.*.created", () => count.toFixed(), { enabled: false });
  hooks.useSubscription("orders.*.created", (order, event) => [order.id.toFixed(), event.data.status]);
  // @ts-expect-error an order has no carrier
  hooks.useSubscription("orders.*.created", (order) => order.carrier);
  sure<Same<ReturnType<typeof hooks.useGateStatus>, Status>>();
  void hooks.useGate().publish("orders.1.shipped", { carrier: "UPS" });
  const anything = react.useEvents("any.thing").events[0]?.data;
  sure<Same<typeof anything, unknown>>();
  return [shipped[0]?.data.carrier, error?.code, items[0]?.status, status === "behind", reload()];
}
react.GateProvider({ url: "https://example.com", options: { token: () => "t" }, children: "text" });
react.GateProvider({ gate });

// Vue.
export function setup() {
  vue.gatePlugin.install({ provide() {} }, gate);
  vue.provideGate("https://example.com", { token: null });
  const { useEvents, useGateStatus, useLiveCollection, useSubscription } = vue.hooksFor<Topics>();
  const { events, missed } = useEvents(() => "orders.*.shipped" as const, () => ({ limit: 5 }));
  const carrier = events.value[0]?.data.carrier;
  useSubscription("orders.*.shipped", (shipped) => shipped.carrier);
  useSubscription(null, () => {}, { enabled: false });
  // @ts-expect-error orders are shipped, not sent
  useEvents("orders.*.sent");
  // @ts-expect-error the same, of a getter
  useEvents(() => "orders.*.sent" as const);
  // @ts-expect-error the same
  useSubscription("orders.*.sent", () => {});
  const { items, reload } = useLiveCollection<Order>("orders", { load });
  return [carrier?.length, missed.value.toFixed(), items.value[0]?.id, useGateStatus().value === "live", reload()];
}

// Svelte.
export function component() {
  const provided = svelte.provideGate<Topics>(undefined, { token: "t" });
  const { useEvents, useLiveCollection } = svelte.hooksFor<Topics>();
  useEvents("orders.*.shipped").subscribe(({ events }) => events[0]?.data.carrier)();
  const live = useLiveCollection<Order>("orders", { load });
  live.subscribe(({ items }) => items[0]?.status);
  live.reload();
  return svelte.readable(eventsStore(provided, "orders.*.created")).subscribe(({ events }) => events[0]?.data.id.toFixed());
}
