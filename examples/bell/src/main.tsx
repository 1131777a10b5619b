import { connect } from "headgate";
import { badgeTitle, createInbox } from "headgate/inbox";
import { createOutbox } from "headgate/offline";
import { createRoot } from "react-dom/client";
import { Bell, type Notice } from "./Bell";
import "./bell.css";

const gate = connect(location.origin);
// With an outbox, what is read without a connection counts when there is one again.
const inbox = createInbox<Notice>(gate, { outbox: createOutbox(gate) });
badgeTitle(inbox);

const fail = () => fetch(`/orders/${Date.now() % 10_000}/fail`, { method: "POST" });
const page = <><h1>Shop</h1><Bell inbox={inbox} /><button onClick={fail}>Place an order that fails</button></>;
createRoot(document.querySelector("#app")!).render(page);
