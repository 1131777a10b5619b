/** An application with strict settings: each line compiles, or must not and says so. Compiled as a module and for `require`. */
import type { AnyTopics, ConnectOptions, ErrorCode, EventCallback, Gate, HeadgateEvent, PayloadOf, State, Status, Subscription, TopicOf } from "headgate";
import { connect, events, HeadgateError, load, matches } from "headgate";
import { LiveCollection, LiveModel, NotificationList } from "headgate/backbone";
import { createInbox } from "headgate/inbox";
import { createOutbox, type Outbox } from "headgate/offline";
import { presence } from "headgate/presence";
import { request } from "headgate/request";
import { connect as connectTabs } from "headgate/tabs";

/** Compiles if two types are one. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const sure = <_ extends true>() => {};

interface Order {
  id: number;
  status: string;
}
interface Shipped {
  carrier: string;
}
interface Topics {
  "orders.*.shipped": Shipped;
  "orders.*.created": Order;
  "users.#": { name: string };
  "users.*.name": string;
  "a.#.z": 1;
  plain: null;
}

// Which payload a name has.
sure<Same<PayloadOf<Topics, "orders.*.shipped">, Shipped>>();
sure<Same<PayloadOf<Topics, "orders.42.shipped">, Shipped>>();
sure<Same<PayloadOf<Topics, `orders.${string}.shipped`>, Shipped>>();
sure<Same<PayloadOf<Topics, `orders.${number}.created`>, Order>>();
sure<Same<PayloadOf<Topics, "orders.42.*">, Shipped | Order>>();
sure<Same<PayloadOf<Topics, "orders.#">, Shipped | Order>>();
sure<Same<PayloadOf<Topics, "#.shipped">, Shipped | { name: string } | never>>();
sure<Same<PayloadOf<Topics, "users.ana.name">, string | { name: string }>>();
sure<Same<PayloadOf<Topics, "users">, { name: string }>>();
sure<Same<PayloadOf<Topics, "a.z">, 1>>();
sure<Same<PayloadOf<Topics, "a.b.c.z">, 1>>();
sure<Same<PayloadOf<Topics, "a.b.c">, unknown>>();
sure<Same<PayloadOf<Topics, "orders.42.7.shipped">, unknown>>();
sure<Same<PayloadOf<Topics, "orders.shipped">, unknown>>();
sure<Same<PayloadOf<Topics, "plain orders.1.shipped">, null | Shipped>>();
sure<Same<PayloadOf<Topics, string>, unknown>>();
sure<Same<PayloadOf<AnyTopics, "any.thing">, unknown>>();
sure<Same<PayloadOf<AnyTopics, string>, unknown>>();

const maybe: AbortSignal | undefined = Math.random() < 0.5 ? undefined : new AbortController().signal;
declare module "headgate" {
  interface ApplicationEvents {
    "menu:open": [place: string];
  }
}

const base: ConnectOptions = { token: () => fetch("/token") };
const gate = connect<Topics>("https://example.com", { ...base, token: async () => (await fetch("/token")).text(), resync: ({ count, lost }) => [count?.toFixed(), lost] });
const id = String(42);

// Handlers.
gate.on("orders.*.shipped", (shipped, event) => [shipped.carrier.length, event.data.carrier, event.topic, event.offset?.toFixed()]);
gate.on(`orders.${id}.shipped`, (shipped) => shipped.carrier);
gate.once("orders.42.created", (order) => order.id.toFixed());
gate.on("orders.#", (either) => ("carrier" in either ? either.carrier : either.status));
gate.on("orders.*.shipped", function (this: Order) {
  return this.id;
}, { id: 1, status: "" });
// @ts-expect-error an order has no carrier
gate.on("orders.*.created", (order) => order.carrier);
// @ts-expect-error another payload
gate.on("orders.*.shipped", (order: Order) => order.id);
// @ts-expect-error only `subscribe` has a signal
gate.on("orders.*.created", () => {}, null, { signal: AbortSignal.abort() });
gate.on({ "orders.*.created": (order) => order.id, "connection:up": ({ session }) => session.length, "menu:open": (place) => place.length });
gate.off("orders.*.shipped").off(null, null, gate).off();
gate.listenTo(gate, "plain", (nothing: null) => nothing);
gate.listenTo({ on() {}, off() {} }, "anything", () => {}).stopListening();

// Lifecycle events.
gate.on("connection:refused", (error, { delayMs }) => [error.code, delayMs?.toFixed()]);
gate.on("connection:down", ({ reason }) => reason.length);
gate.on("delivery:gap", (gap) => [gap.count, gap.reason === "rolled_back" && gap.epoch, gap.repairing]);
gate.on("status:change", ({ status, previous, reason }) => [status === "live", previous, reason.length]);
gate.on("state:change", ({ status, subscriptions }) => [status, subscriptions.a]);
gate.on("menu:open", (place) => place.length);
gate.on("connection:up menu:open", (...anything) => anything.length);
gate.off("delivery:gap").off(null, undefined, base).off();
presence(gate, "rooms.7").on("member:join", ({ user }) => user.length).on("change", () => {});
presence(gate, "rooms.7").on("member:change", (member, previous) => member.since - previous.since);
connectTabs().on("tabs:change", ({ role }) => role === "leading");
// @ts-expect-error no such name
presence(gate, "rooms.7").on("member:joined", () => {});
// @ts-expect-error no such name, and none that is declared
gate.on("delivery:gapp", () => {});
// @ts-expect-error the same, among several
gate.on("delivery:gap delivery:gapp", () => {});
// @ts-expect-error the same, once
gate.once("conection:up", () => {});
// @ts-expect-error the same, in a map
gate.on({ "orders.*.created": (order) => order.id, "menu:close": () => {} });
// @ts-expect-error the same, to be removed
gate.off("delivery:gapp");
// @ts-expect-error the same, of another
gate.listenTo(gate, "delivery:gapp", () => {});
// @ts-expect-error it has a place
gate.on("menu:open", (place: number) => place);
gate.on("all", (name, ...more) => [name, more]);
// @ts-expect-error there is no such reason
gate.on("delivery:gap", (gap) => gap.reason === "none");
// @ts-expect-error a gap has no carrier
gate.on("delivery:gap", (gap) => gap.carrier);

// Subscriptions.
const subscription: Subscription = gate.subscribe("orders.*.shipped", { overflow: "latest", signal: maybe, since: { last: 5 } }, (shipped) => shipped.carrier);
sure<Same<typeof subscription.status, "wanted" | "requested" | "active" | "changed" | "releasing" | "suspended" | "waiting" | "retrying" | "refused" | "idle">>();
gate.subscribe("orders.1.created", (order, { data }) => [order.id, data.status]);
{
  using block = gate.subscribe("plain", () => {});
  console.log(block.status);
}
// @ts-expect-error no such policy
gate.subscribe("plain", { overflow: "none" }, () => {});
// @ts-expect-error no such option
gate.subscribe("plain", { overlow: "drop" }, () => {});
// @ts-expect-error no handler
gate.subscribe("plain", { overflow: "drop" });
// @ts-expect-error it cannot be set
subscription.status = "idle";

// Loading and following.
const carriersLoad = load(gate, "orders.*.shipped", async ({ signal }) => (signal.aborted ? ["none"] : ["UPS"]), {
  reset: (carriers) => carriers.map((carrier) => carrier.length),
  apply: ({ carrier }, { offset }) => console.log(carrier.length, offset),
  changed: ({ status, error }) => console.log(status === "behind", error),
  since: { epoch: "e", offset: 1 },
});
carriersLoad.close();
// @ts-expect-error: there is nothing to do with an event
load(gate, "orders.*.shipped", () => [], { reset: () => {} });

// Loops, publishing, the rest.
async function work() {
  for await (const { data, topic } of events(gate, "orders.*.shipped", { limit: 10, signal: maybe })) console.log(data.carrier, topic.length);
  for await (const event of events(gate, "orders.42.*")) sure<Same<typeof event.data, Shipped | Order>>();
  const { offset } = await gate.publish("orders.1.shipped", { carrier: "UPS" }, { id: "x", echo: false });
  await gate.publish(`orders.${id}.created`, { id: 1, status: "new" });
  // @ts-expect-error another payload
  await gate.publish("orders.1.shipped", { id: 1 });
  // @ts-expect-error no pattern of the map has it
  await gate.publish("orders.1.shiped", { carrier: "UPS" });
  // @ts-expect-error an offset is a number
  await gate.replay("orders.#", { from: "1", to: 2 });
  gate.on("delivery:gap", (gap) => void gate.replay("orders.#", gap));
  return (await gate.replay("orders.#", { from: offset, to: offset })).toFixed();
}

// The state, and errors.
const status: Status = gate.status;
const state: State = gate.state;
// @ts-expect-error it cannot be set
gate.status = "live";
function word(of: Status): string {
  switch (of) {
    case "idle": case "connecting": case "resuming": case "waiting": case "paused": return "soon";
    case "live": case "catching_up": case "moving": return "yes";
    case "refused": case "closed": return "no";
  }
}
try {
  matches("a.*", "a.b");
} catch (error) {
  if (error instanceof HeadgateError && error.code === "payload_too_large") console.log(error.parts.limit, error.retry);
  if (error instanceof HeadgateError && error.code === "outcome_unknown") void gate.publish("plain", null, { id: error.parts.id });
  // @ts-expect-error the size is a number
  if (error instanceof HeadgateError && error.code === "payload_too_large") error.parts.size.trim();
  // @ts-expect-error no such code
  if (error instanceof HeadgateError && error.code === "payload_to_large") console.log(error);
}
const code: ErrorCode = "forbidden";

// Requests to the application.
declare module "headgate/request" {
  interface Requests {
    "orders.price": { data: { sku: string }; answer: { cents: number } };
    "orders.cancel": { data: string; answer: null };
  }
}
async function ask(signal: AbortSignal) {
  const { cents } = await request(gate, "orders.price", { sku: "a7" }, { timeoutMs: 500, signal });
  sure<Same<typeof cents, number>>();
  const done = await request<"orders.cancel">(gate, "orders.cancel", "o7");
  sure<Same<typeof done, null>>();
  // @ts-expect-error no such request
  await request(gate, "orders.prices", { sku: "a7" });
  // @ts-expect-error its data is an object with a text
  await request(gate, "orders.price", { sku: 7 });
  // @ts-expect-error a time is a number
  await request(gate, "orders.cancel", "o7", { timeoutMs: "500" });
}
void ask;

// The topic of an event tells its payload.
sure<Same<TopicOf<"orders.*.shipped">, `orders.${string}.shipped`>>();
sure<Same<TopicOf<"users.#">, "users" | `users.${string}`>>();
sure<Same<TopicOf<"a.#.z">, "a.z" | `a.${string}.z`>>();
sure<Same<TopicOf<"*.b.#">, `${string}.b` | `${string}.b.${string}`>>();
sure<Same<TopicOf<"plain">, "plain">>();
gate.on("orders.#", (_either, event) => {
  if (event.topic === "orders.42.shipped") return event.data.carrier;
  if (event.topic === "orders.42.created") return event.data.status;
  // @ts-expect-error it may be either
  return event.data.carrier;
});
gate.subscribe("orders.42.*", (_either, event) => {
  // @ts-expect-error an order that was created has no carrier
  if (event.topic === "orders.42.created") return event.data.carrier;
  return event.topic.length;
});

// Without a map every payload is unknown, and a handler may say its type.
const free = connect();
free.on("orders.*.shipped", (order: Shipped, event) => console.log(event.topic.length, order.carrier));
free.on("orders.*.shipped", (order: Shipped, event: HeadgateEvent<Shipped>) => console.log(event.data.carrier, order.carrier));
// @ts-expect-error nothing is known of it
free.on("orders.*.shipped", (order) => order.carrier);
// @ts-expect-error the same
free.subscribe("orders.*.shipped", (_order, event) => event.data.carrier);
free.on({ "a.b": (data) => data, "connection:up": ({ session }) => session });
void free.publish("a.b", 1);
const handler: EventCallback<Order> = (order, { data }) => [order.id, data.status];
free.on("a", handler).subscribe("a", handler);
const loose: Gate = free;
const event: HeadgateEvent<Order> | undefined = undefined;

// An outbox: the topics are those of its gate.
const outbox: Outbox<Topics> = createOutbox(gate, { storage: "indexeddb", user: "ana", maxAgeMs: undefined });
void outbox.publish("orders.42.shipped", { carrier: "UPS" }, { id: undefined }).then(({ offset }) => offset + 1);
// @ts-expect-error another payload
void outbox.publish("orders.42.shipped", { carrier: 1 });
void createOutbox(free).publish("a.b", 1);
gate.on("publish:refused", ({ error, topic, restored }) => console.log(error.code, topic.length, restored));
void outbox.pending().then(([first]) => first?.id);
void outbox.discard().then(() => outbox.discard(["x"]));

// Models.
const model = new LiveModel<Order>({ id: 1, status: "new" }, { gate, topic: "orders" });
sure<Same<ReturnType<typeof model.get<"status">>, string | undefined>>();
// @ts-expect-error an order has no carrier
model.set("carrier", "UPS");
const orders = new LiveCollection<Order>([], { gate, topic: "orders" });
orders.each((order) => order.follow(gate).unfollow());
const Orders = LiveCollection.extend({ url: "/orders", topic: "orders" });
void new Orders([], { gate }).url;
class Mine extends LiveModel<Order> {
  isNewest() {
    return this.get("status") === "new";
  }
}
console.log(new Mine().isNewest());
const list = new NotificationList<Order>([], { inbox: createInbox<Order>(gate) });
void list.on("unread", (count: number) => count).inbox.markRead(list.pluck("id"));
console.log(list.at(0)?.get("data")?.status, list.unread.toFixed(), [work, word, state, code, status, loose, event]);

// A pattern that no topic of the map can match is a mistake, wherever it is.
// @ts-expect-error orders are shipped, not sent
gate.on("orders.*.sent", () => {});
// @ts-expect-error one of two
gate.on("plain orders.*.sent", () => {});
// @ts-expect-error the same
gate.subscribe("orders.42", () => {});
// @ts-expect-error the same
gate.subscribe("orders.42", { overflow: "drop" }, () => {});
// @ts-expect-error the same
void events(gate, "nothing.here").next();
gate.on("users.me.mail plain connection:up all", () => {}).subscribe("#", (anything) => anything);
declare const anyName: string;
gate.on(anyName, () => {}).subscribe(anyName, () => {});
