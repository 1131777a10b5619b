import { useState } from "react";
import { useEvents, useGateStatus, useLiveCollection, useSubscription } from "./headgate";
import { createOrder, loadOrders, shipOrder } from "./shop";
import type { Order } from "./topics";

const COLUMNS = { new: "To ship", shipped: "Shipped" } as const;

export function Board() {
  const status = useGateStatus();
  const { items, status: standing, error } = useLiveCollection<Order>("orders", { load: loadOrders });
  const [toast, setToast] = useState("");
  useSubscription("orders.*.shipped", ({ id }) => setToast(`Order ${id} was shipped`));

  return (
    <main>
      <header>
        <h1>Orders</h1>
        <p>
          <output id="status" data-status={status}>{status}</output> <output id="standing">{standing}</output>
        </p>
        <button id="create" onClick={createOrder}>New order</button>
      </header>
      {error && <p role="alert">{String(error)}</p>}
      <div id="orders">
        {Object.entries(COLUMNS).map(([column, title]) => (
          <section key={column} aria-label={title}>
            <h2>{title} <small>{items.filter((order) => order.status === column).length}</small></h2>
            <ul>
              {items.filter((order) => order.status === column).map(({ id }) => (
                <li key={id}>
                  Order {id} {column === "new" && <button onClick={() => shipOrder(id)}>Ship</button>}
                </li>
              ))}
            </ul>
          </section>
        ))}
        <Activity />
      </div>
      <output id="toast">{toast}</output>
    </main>
  );
}

/** The latest events. Components with the same pattern share one subscription. */
function Activity() {
  const { events, missed, error } = useEvents("orders.#", { limit: 20 });
  return (
    <section aria-label="Activity">
      <h2>Activity</h2>
      {missed > 0 && <p role="status">{missed} events are missing</p>}
      {error && <p role="alert">{error.message}</p>}
      <ol id="activity">
        {events.map(({ topic, offset, data }) => (
          <li key={offset}>{topic} {data.version}</li>
        ))}
      </ol>
    </section>
  );
}
