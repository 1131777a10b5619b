/**
 * What an application's tests do with the client, whatever runs them: ../package.test.js runs these on the packed package.
 *
 * A runner has a file beside this one, which loads the package as that runner does.
 */
const assert = require("node:assert/strict");
const { act, createElement } = require("react");
const { createRoot } = require("react-dom/client");

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

/** Wait until something is so, a turn of the page at a time. @param {() => boolean} isSo */
async function until(isSo) {
  for (let nth = 0; nth < 200 && !isSo(); nth++) await act(() => new Promise((resolve) => setTimeout(resolve, 10)));
}

/** Return the tests, by name. @param {any} package `headgate` and `headgate/react` @param {boolean} hasPage whether there is a document */
exports.scenarios = ({ connect, GateProvider, useEvents, useGateStatus }, hasPage) => ({
  "this is the page that it is taken for": () => assert.equal(typeof document, hasPage ? "object" : "undefined"),

  "a gate is made, and closed, without a connection"() {
    const gate = connect("https://gateway.test", { autoConnect: false });
    assert.equal(gate.status, "idle");
    gate.close();
    assert.equal(gate.status, "closed");
  },

  async "handlers get events, and a payload that JSON would change is refused"() {
    const gate = connect("https://gateway.test", { WebSocket: Socket });
    const got = new Promise((resolve) => gate.on("orders.#", (data) => resolve(data)));
    await gate.subscribed("orders.#");
    Socket.last.message("event", "orders.42", { carrier: "UPS" }, { id: "i", time: 1, offset: 101 });
    assert.deepEqual(await got, { carrier: "UPS" });
    await assert.rejects(gate.publish("orders.42", { note: undefined }), { code: "not_serializable", parts: { path: "$.note", reason: "undefined" } });
    gate.close();
  },

  ...(hasPage && {
    async "a component shows events"() {
      globalThis.IS_REACT_ACT_ENVIRONMENT = true;
      const Orders = () => createElement("p", null, useGateStatus(), ...useEvents("orders.#").events.map(({ data }) => data.carrier));
      const host = document.body.appendChild(document.createElement("div"));
      const shown = createRoot(host);
      await act(async () => shown.render(createElement(GateProvider, { url: "https://gateway.test", options: { WebSocket: Socket } }, createElement(Orders))));
      await until(() => host.textContent.startsWith("live"));
      await act(async () => Socket.last.message("event", "orders.42", { carrier: "DHL" }, { id: "j", time: 1, offset: 101 }));
      await until(() => host.textContent.includes("DHL"));
      assert.equal(host.textContent, "liveDHL");
      await act(async () => shown.unmount());
    },
  }),
});
