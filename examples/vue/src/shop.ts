import type { Order } from "./topics";

/** Bring all orders. */
export async function loadOrders({ signal }: { signal: AbortSignal }): Promise<Order[]> {
  const answer = await fetch("/orders", { signal });
  if (!answer.ok) throw new Error(`the shop says ${answer.status}`);
  return answer.json();
}

/** Make an order; the board hears of it as everybody does. */
export const createOrder = () => fetch("/orders", { method: "POST" });

/** Ship an order. */
export const shipOrder = (id: number) => fetch(`/orders/${id}/ship`, { method: "POST" });
