import { connect } from "headgate";

/** The payload of each topic: a handler with another one does not compile. */
interface Topics {
  "orders.*.shipped": { id: number; carrier: string };
}

const gate = connect<Topics>(location.origin);
const part = (id: string) => document.getElementById(id) as HTMLElement;

gate.subscribe("orders.*.shipped", (order, { topic }) => {
  part("events").append(Object.assign(document.createElement("li"), { textContent: `${topic} by ${order.carrier}` }));
});
gate.on("status:change", ({ status }) => {
  part("status").textContent = status;
});
part("ship").onclick = () => fetch("/orders/42/ship", { method: "POST" });
