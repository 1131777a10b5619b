import { hooksFor } from "headgate/vue";

export type Order = { id: number; version: number; status: "new" | "shipped" };
/** The payload of each topic. */
type Topics = { "orders.*.created": Order; "orders.*.shipped": Order };

export const { useEvents, useGate, useGateStatus, useLiveCollection, useSubscription } = hooksFor<Topics>();

export async function loadOrders({ signal }: { signal: AbortSignal }): Promise<Order[]> {
  const answer = await fetch("/orders", { signal });
  if (!answer.ok) throw new Error(`the shop says ${answer.status}`);
  return answer.json();
}
/** Make an order; the board hears of it as everybody does. */
export const createOrder = () => fetch("/orders", { method: "POST" });
export const shipOrder = (id: number) => fetch(`/orders/${id}/ship`, { method: "POST" });
