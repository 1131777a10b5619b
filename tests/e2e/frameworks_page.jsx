/**
 * The React page of test_client_frameworks.py: hooks in strict mode. Everything that a test asks about is in `window.page`.
 */
import { GateProvider, useEvents, useGate, useGateStatus, useLiveCollection, useSubscription } from "headgate/react";
import { StrictMode, Suspense, use, useState } from "react";
import { createRoot } from "react-dom/client";

const page = { sent: [], statuses: [], handled: [], subscribes: 0 };
window.page = page;
/** Settled by the test. */
page.slow = new Promise((resolve) => {
  page.hurry = resolve;
});

function List() {
  const { events } = useEvents("numbers.*", { limit: 3 });
  return <output id="numbers">{events.map(({ data }) => data).join(" ")}</output>;
}

/** It suspends once, behind its hooks: React forgets what it has made until then. */
function Slow() {
  const { events } = useEvents("numbers.*", { limit: 1 });
  use(page.slow);
  return <output id="slow">{events.map(({ data }) => data).join(" ")}</output>;
}

function Handler({ round }) {
  // Another function at each render.
  useSubscription("numbers.*", (number) => page.handled.push([round, number]));
  return <output id="round">{round}</output>;
}

/** Another topic brings other options in the same render. */
function Stock({ topic }) {
  const { items } = useLiveCollection(topic, { initial: [{ id: topic }] });
  return <output id="stock">{items[0].id}</output>;
}

function Watch() {
  const gate = useGate();
  if (page.gate !== gate) count(gate);
  page.gate = gate;
  page.statuses.push(useGateStatus());
  return null;
}

/** Count the gate's subscriptions, one handler each. */
function count(gate) {
  const { subscribe } = gate;
  gate.subscribe = (...words) => {
    page.subscribes++;
    return subscribe.apply(gate, words);
  };
}

function App() {
  const [round, setRound] = useState(1);
  const [shown, setShown] = useState(true);
  const [open, setOpen] = useState(true);
  const [topic, setTopic] = useState("apples");
  page.move = setTopic;
  page.again = () => setRound((before) => before + 1);
  page.show = setShown;
  page.open = setOpen;
  if (!open) return null;
  // The options are another object at each render.
  return (
    <GateProvider url={location.origin} options={{ reconnectDelayMinMs: 50 }}>
      <Watch />
      <Handler round={round} />
      {shown && <List />}
      <Stock topic={topic} />
      <Suspense fallback={<output id="waiting" />}>
        <Slow />
      </Suspense>
    </GateProvider>
  );
}

// Record the packets that go to the gateway.
const { send } = WebSocket.prototype;
WebSocket.prototype.send = function (packet) {
  for (const [, name] of packet.matchAll(/"(subscribe|unsubscribe)"/g)) page.sent.push(name);
  if (packet.startsWith("40")) page.sent.push("connect");
  return send.call(this, packet);
};

createRoot(document.querySelector("#app")).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
