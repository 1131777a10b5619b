"use client";

import { useGateStatus, useLiveCollection } from "headgate/react";

interface Order {
  id: number;
  version: number;
  status: "new" | "shipped";
}

const load = async ({ signal }: { signal: AbortSignal }): Promise<Order[]> => (await fetch("/orders", { signal })).json();

/** The orders of the shop, which change as others work on them. */
export function Orders() {
  const status = useGateStatus();
  const { items } = useLiveCollection<Order>("orders", { load });
  return (
    <>
      <output id="status">{status}</output>
      <ul id="orders">
        {items.map((order) => (
          <li key={order.id}>
            Order {order.id}: {order.status}
          </li>
        ))}
      </ul>
      <button id="create" onClick={() => fetch("/orders", { method: "POST" })}>New order</button>
    </>
  );
}
