import { connect } from "headgate";
import { badgeTitle, createInbox } from "headgate/inbox";
import { createOutbox } from "headgate/offline";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { Bell, type Notice } from "./Bell";
import "./bell.css";

const name = new URLSearchParams(location.search).get("name") ?? "ana";
const gate = connect(location.origin, { auth: { name } });
// With an outbox, what is read without a connection counts when there is one again.
const inbox = createInbox<Notice>(gate, { outbox: createOutbox(gate) });
badgeTitle(inbox);

createRoot(document.querySelector("#app")!).render(
  <StrictMode>
    <header>
      <h1>Shop of {name}</h1>
      <Bell inbox={inbox} />
    </header>
    <main>
      <p>Open this page in two windows, or on a phone. What you read in one is read in all.</p>
      <button type="button" onClick={() => fetch(`/orders?name=${name}`, { method: "POST" })}>
        Place an order that fails
      </button>
    </main>
  </StrictMode>,
);
