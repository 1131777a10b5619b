/** An application's test under jest and jsdom: run by ../package.test.js, on the packed package. */
const { act, createElement } = require("react");
const { createRoot } = require("react-dom/client");
const { connect } = require("headgate");
const { GateProvider, useEvents, useGateStatus } = require("headgate/react");

/** A gateway as far as one client needs it. */
class Socket {
  static last;

  constructor(url) {
    this.url = url;
    this.sent = [];
    Socket.last = this;
    setTimeout(() => this.says('0{"sid":"x","upgrades":[],"pingInterval":25000,"pingTimeout":20000,"maxPayload":2000}'));
  }

  send(text) {
    this.sent.push(text);
    if (!text.startsWith("40")) return;
    this.says('40/notifications,{"sid":"y"}');
    const { subscriptions } = JSON.parse(text.slice(text.indexOf("{")));
    const results = subscriptions.map(({ pattern }) => ({ pattern, ok: true }));
    this.message("welcome", { session: "s", epoch: "e", offset: 100, resumed: null, limits: {}, subscriptions: results });
  }

  message(...message) {
    this.says(`42/notifications,${JSON.stringify(message)}`);
  }

  says(data) {
    this.onmessage({ data });
  }

  close() {}
}

globalThis.IS_REACT_ACT_ENVIRONMENT = true;

test("this is a page without a message channel", () => {
  expect(typeof document).toBe("object");
  expect([typeof MessageChannel, typeof setImmediate]).toEqual(["undefined", "undefined"]);
});

test("a gate is made, and closed, without a connection", () => {
  const gate = connect("https://gateway.test", { autoConnect: false });
  expect(gate.status).toBe("idle");
  gate.close();
  expect(gate.status).toBe("closed");
});

test("handlers get events, and a payload that JSON would change is refused", async () => {
  const gate = connect("https://gateway.test", { WebSocket: Socket });
  const got = new Promise((resolve) => gate.on("orders.#", (data) => resolve(data)));
  await gate.subscribed("orders.#");
  Socket.last.message("event", "orders.42", { carrier: "UPS" }, { id: "i", time: 1, offset: 101 });
  expect(await got).toEqual({ carrier: "UPS" });
  await expect(gate.publish("orders.42", { note: undefined })).rejects.toMatchObject({ code: "not_serializable", parts: { path: "$.note" } });
  gate.close();
});

test("a component shows events", async () => {
  const Orders = () => createElement("p", null, useGateStatus(), ...useEvents("orders.#").events.map(({ data }) => data.carrier));
  const root = createRoot(document.createElement("div"));
  const host = document.body.appendChild(document.createElement("div"));
  const shown = createRoot(host);
  await act(async () => shown.render(createElement(GateProvider, { url: "https://gateway.test", options: { WebSocket: Socket } }, createElement(Orders))));
  for (let nth = 0; nth < 200 && !host.textContent.startsWith("live"); nth++) await act(() => new Promise((resolve) => setTimeout(resolve, 10)));
  await act(async () => Socket.last.message("event", "orders.42", { carrier: "DHL" }, { id: "j", time: 1, offset: 101 }));
  for (let nth = 0; nth < 200 && !host.textContent.includes("DHL"); nth++) await act(() => new Promise((resolve) => setTimeout(resolve, 10)));
  expect(host.textContent).toBe("liveDHL");
  await act(async () => shown.unmount());
  root.unmount();
});
