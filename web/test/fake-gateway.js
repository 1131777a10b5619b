import { mock } from "node:test";
import { Listened, wired } from "./listened.js";

/**
 * A gateway in the place of socket.io-client: records the client's messages, and sends, refuses or cuts on command. It keeps to
 * the contract of docs/protocol.md and to socket.io-client's (`auth` asked at each connect, acknowledgements with a timeout
 * error first), but not to timing, as nothing happens unless a test says so.
 */
export class FakeGateway extends Listened {
  constructor() {
    super();
    // The client's monotonic clock stands still, so that dispatching never runs out of its slice on a busy machine.
    mock.method(performance, "now", () => 0);
  }

  /** One entry for each CONNECT: the auth object. */
  connects = [];
  /** Requests that wait for `answer`. */
  requests = [];
  /** How often the client called `connect`. */
  attempts = 0;
  connected = false;
  sendBuffer = [];
  #waiters = [];

  /** Pass this as the `io` option. */
  io = (address, options) => {
    this.address = address;
    this.options = options;
    return this;
  };

  // Called by the client.

  get listenerCount() {
    return this._listeners.size + this._any.length;
  }

  connect() {
    this.attempts++;
    this.options.auth((auth) => {
      this.connects.push(wired(auth));
      this.#wake();
    });
    this.#wake();
  }

  disconnect() {
    this.#drop("io client disconnect");
  }

  timeout() {
    return {
      emitWithAck: (name, body) =>
        new Promise((resolve, reject) => {
          this.requests.push({ name, body: wired(body), acknowledge: (late, reply) => (late ? reject(late) : resolve(reply)) });
          this.#wake();
        }),
    };
  }

  // Called by a test.

  /** Wait until `condition` holds, or fail. */
  async until(condition, what = "condition") {
    const deadlineMs = Date.now() + 30_000;
    while (!condition()) {
      if (Date.now() > deadlineMs) throw new Error(`not reached in 30 s: ${what}`);
      await new Promise((resolve) => {
        this.#waiters.push(resolve);
        setTimeout(resolve, 5);
      });
    }
  }

  /** Let the client in, with its CONNECT number `nth` (from 1). */
  async welcome(more = {}, nth = this.connects.length || 1) {
    await this.until(() => this.connects.length >= nth, `CONNECT ${nth}`);
    const auth = this.connects[nth - 1];
    this.connected = true;
    this.emit("welcome", {
      session: `s${nth}`, user: "ann", epoch: "e1", offset: 100, resumed: auth.resume ? true : null, from: auth.resume ?? null, heartbeat_s: 10,
      limits: { max_payload_bytes: 1000, inbound_per_s: 1000, inbound_burst: 1000 },
      subscriptions: auth.subscriptions.map(({ pattern }) => ({ pattern, ok: true })),
      ...more,
    });
  }

  emit(name, ...args) {
    for (const listener of this._any) listener(name, ...args);
  }

  event(topic, data, offset, more = {}) {
    this.emit("event", topic, data, { id: `i${offset}`, time: 1000, ...(offset === undefined ? {} : { offset }), ...more });
  }

  /** Refuse the attempt. */
  refuse(data, message = "refused") {
    this._listeners.get("connect_error")?.(Object.assign(new Error(message), { data }));
  }

  /** The network fails the attempt, or a server in the gateway's place answers it. @param context the XMLHttpRequest */
  fail(context) {
    this._listeners.get("connect_error")?.(Object.assign(new Error("xhr poll error"), { description: context?.status ?? 0, context }));
  }

  /** Let the client in, and let it take the welcome. */
  async letIn(more, nth) {
    await this.welcome(more, nth);
    await settle();
  }

  /** Cut the connection, and let the client in again with its CONNECT number `nth`. */
  async comeBack(nth = 2, more = {}) {
    this.cut();
    await this.welcome(more, nth);
  }

  /** Wait for CONNECT number `nth`, and refuse it. */
  async refuseConnect(data, nth = 1, message = undefined) {
    await this.until(() => this.connects.length === nth, `CONNECT ${nth}`);
    this.refuse(data, message);
  }

  /** Cut the connection. */
  cut(reason = "transport close") {
    this.#drop(reason);
  }

  /** Answer the oldest request, which must have this name. */
  async answer(name, reply = { ok: true }) {
    await this.until(() => this.requests.length > 0, `a request ${name}`);
    const request = this.requests.shift();
    if (request.name !== name) throw new Error(`expected ${name}, got ${request.name} ${JSON.stringify(request.body)}`);
    request.acknowledge(null, reply);
    return request.body;
  }

  #drop(reason) {
    const was = this.connected;
    this.connected = false;
    const lost = this.requests.splice(0);
    if (was) this._listeners.get("disconnect")?.(reason);
    for (const { acknowledge } of lost) acknowledge(new Error("socket has been disconnected"));
  }

  #wake() {
    for (const resolve of this.#waiters.splice(0)) resolve();
  }
}

/** Let queued microtasks run, and one turn of the event loop. */
export function settle() {
  return new Promise((resolve) => setImmediate(resolve));
}
