import { connect } from "headgate";

const gate = connect(location.origin);
const list = document.querySelector("#events");

gate.subscribe("orders.#", (order, { topic }) => {
  list.append(Object.assign(document.createElement("li"), { textContent: `${topic} ${order.version}` }));
});
gate.on("status:change", ({ status }) => {
  document.querySelector("#status").textContent = status;
});
