import { useState } from "react";
import { Activity } from "./Activity";
import { useGate, useGateStatus, useLiveCollection, useSubscription } from "./headgate";
import { createOrder, loadOrders, shipOrder } from "./shop";
import type { Order } from "./topics";

export function Board() {
  const status = useGateStatus();
  const { items, status: standing, error } = useLiveCollection<Order>("orders", { load: loadOrders });
  const [panels, setPanels] = useState(["left", "right"]);
  const [toast, setToast] = useState("");
  const gate = useGate();
  useSubscription("orders.*.shipped", ({ id }) => setToast(`Order ${id} was shipped`));

  return (
    <main>
      <p>
        Connection: <output id="status">{status}</output>. Orders: <output id="standing">{standing}</output> {error && String(error)}
      </p>
      <ul id="orders">
        {items.map(({ id, status }) => (
          <li key={id}>
            Order {id}: {status} {status === "new" && <button onClick={() => shipOrder(id)}>Ship</button>}
          </li>
        ))}
      </ul>
      <button id="create" onClick={createOrder}>
        New order
      </button>
      <output id="toast">{toast}</output>
      {panels.map((name) => (
        <Activity key={name} name={name} close={() => setPanels(panels.filter((each) => each !== name))} />
      ))}
      <button id="list" onClick={() => setToast(Object.keys(gate.state.subscriptions).join(" "))}>
        List subscriptions
      </button>
    </main>
  );
}
