/** A page with the types that `headgate types` wrote from tests/golden/schemas: each line compiles, or must not and says so. */
import type { PayloadOf } from "headgate";
import { connect } from "headgate";
import type { Address, Odd, Paid, Shipped, Topics, Tree } from "./topics.mjs";

/** Compiles if two types are one. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const sure = <_ extends true>() => {};

sure<Same<PayloadOf<Topics, "orders.42.shipped">, Shipped>>();
sure<Same<PayloadOf<Topics, "orders.*.paid">, Paid>>();
sure<Same<PayloadOf<Topics, "refunds.42.late">, Paid>>();

const gate = connect<Topics>("https://example.com");
const to: Address = { street: "Long Street" };
gate.on("orders.*.shipped", (data, event) => {
  const carrier: "UPS" | "DHL" | null = data.carrier;
  const weight: number | undefined = data["weight-kg"];
  // @ts-expect-error: it may be missing
  data["weight-kg"].toFixed();
  // @ts-expect-error: a closed object has no other member
  data.carier;
  return [carrier, weight, data.lines.map(({ sku, count }) => sku + count.toFixed()), event.data.from?.length];
});
gate.on("orders.7.paid", ({ amount, by }) => (by.kind === "card" ? by.last4 : amount.toFixed()));
gate.publish("orders.42.shipped", { carrier: null, to, lines: [{ sku: "a", count: 1 }] });
// @ts-expect-error: `to` is required
gate.publish("orders.42.shipped", { carrier: null, lines: [] });
// @ts-expect-error: a member that is there is not undefined
gate.publish("orders.42.shipped", { carrier: "UPS", to: { street: "x", zip: undefined }, lines: [] });
// @ts-expect-error: no schema has this topic
gate.publish("orders.42.lost", 1);

export const tree: Tree = ["a", [["b"], []]];
export const odd: Odd = { needed: 1, msgspec: 1, "a b": [1], pair: [1, "x"], counts: { a: 1 }, either: { x: 1 }, more: { id: "1", other: 2 } };
// @ts-expect-error: a place that must be there is missing
export const pair: Odd["pair"] = [1];
// @ts-expect-error: nothing can be there
export const never: Odd = { needed: 1, never: 1 };
