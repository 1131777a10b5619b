import { useState } from "react";
import { createOrder, loadOrders, type Order, shipOrder, useEvents, useGateStatus, useLiveCollection, useSubscription } from "./orders";

export function Board() {
  const status = useGateStatus();
  const { items, status: standing, error } = useLiveCollection<Order>("orders", { load: loadOrders });
  const [toast, setToast] = useState("");
  useSubscription("orders.*.shipped", ({ id }) => setToast(`Order ${id} was shipped`));
  const open = items.filter((order) => order.status === "new");
  const shipped = items.filter((order) => order.status === "shipped");
  return (
    <>
      <header>
        <h1>Orders</h1>
        <p><output id="status" data-status={status}>{status}</output> <output id="standing">{standing}</output></p>
        <button onClick={createOrder}>New order</button>
      </header>
      {error && <p role="alert">{String(error)}</p>}
      <section aria-label="To ship">
        <h2>To ship <small>{open.length}</small></h2>
        {open.map(({ id }) => <p key={id}>Order {id} <button onClick={() => shipOrder(id)}>Ship</button></p>)}
      </section>
      <section aria-label="Shipped">
        <h2>Shipped <small>{shipped.length}</small></h2>
        {shipped.map(({ id }) => <p key={id}>Order {id}</p>)}
      </section>
      <Activity />
      <output id="toast">{toast}</output>
    </>
  );
}

/** The latest events. Components with the same pattern share one subscription. */
function Activity() {
  const { events, missed, error } = useEvents("orders.#", { limit: 20 });
  return (
    <section aria-label="Activity">
      <h2>Activity</h2>
      {error ? <p role="alert">{error.message}</p> : missed > 0 && <p role="status">{missed} events are missing</p>}
      <ol id="activity">{events.map(({ topic, offset, data }) => <li key={offset}>{topic} {data.version}</li>)}</ol>
    </section>
  );
}
