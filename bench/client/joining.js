/**
 * The cost of many subscriptions for a page: stores made while the client is connected, each acknowledged by its own message.
 * In the processor's time of Node. The gateway is a scripted WebSocket that answers everything, and names no limits.
 *
 * @typedef {{ scenario: string, unit: "ms", value: number, peer: string }} Figure
 */

const STORES = [1000, 4000];

/** A WebSocket to a gateway that accepts everything. */
class Socket {
  constructor() {
    /** @type {string[]} */
    this.line = [];
    this.channel = new MessageChannel();
    // One message for each turn of the page, as from a network.
    this.channel.port1.onmessage = () => this.onmessage?.({ data: /** @type {string} */ (this.line.shift()) });
    this.#say('0{"sid":"s","upgrades":[],"pingInterval":25000,"pingTimeout":20000,"maxPayload":100000}');
  }

  /** @type {((message: { data: string }) => void) | undefined} */
  onmessage;

  /** @param {string} text */
  send(text) {
    const [, kind, id, body] = /^(4\d)\/notifications,(\d*)(.*)$/s.exec(text) ?? [];
    if (kind === "40") {
      const subscriptions = JSON.parse(body).subscriptions.map((/** @type {{ pattern: string }} */ { pattern }) => ({ pattern, ok: true }));
      this.#say('40/notifications,{"sid":"y"}');
      this.#say(`42/notifications,${JSON.stringify(["welcome", { session: "s", user: "u", epoch: "e", offset: 1, resumed: null, limits: {}, subscriptions, heartbeat_s: 10 }])}`);
    } else if (id) this.#say(`43/notifications,${id}[{"ok":true,"epoch":"e","offset":1}]`);
  }

  close() {
    this.channel.port1.close();
  }

  /** @param {string} text */
  #say(text) {
    this.line.push(text);
    this.channel.port2.postMessage(0);
  }
}

const cpuMs = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
};

/** @param {{ connect: any, eventsStore: any }} libraries @returns {Promise<Figure[]>} */
export async function measureJoining({ connect, eventsStore }) {
  /** @type {Figure[]} */
  const figures = [];
  for (const count of STORES) {
    let best = Infinity;
    for (let round = 0; round < 3; round++) {
      const gate = connect("http://localhost", { WebSocket: Socket, transport: "websocket" });
      gate.on("first", () => {});
      await gate.subscribed("first");
      const began = cpuMs();
      /** @type {Set<any>} */
      const waiting = new Set(Array.from({ length: count }, (_, n) => eventsStore(gate, `orders.${n}.*`)));
      await new Promise((resolve) => {
        for (const store of [...waiting]) {
          store.subscribe(() => {
            if (store.getSnapshot().status === "active" && waiting.delete(store) && !waiting.size) resolve(undefined);
          });
        }
      });
      best = Math.min(best, cpuMs() - began);
      gate.close();
    }
    figures.push({ scenario: `${count} stores of a pattern each, until all are active`, peer: "headgate", unit: "ms", value: Math.round(best) });
  }
  return figures;
}
