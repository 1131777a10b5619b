/** Tabs that share a connection: which ones do, the content of their messages, and claims. world.js has the browser and gateway. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it, mock } from "node:test";
import { presence } from "../../src/presence/index.js";
import { connectOn } from "../../src/tabs/connect.js";
import { request } from "../../src/request.js";
import { FakeGateway } from "../fake-gateway.js";
import { World } from "../model-gateway.js";
import { Browser, Gateway } from "./world.js";

const jwt = (claims) => `e30.${btoa(JSON.stringify(claims))}.c2ln`;

describe("tabs", () => {
  let world, gateway, browser, gates, pages;

  beforeEach(() => {
    world = new World(1);
    gateway = new Gateway(world);
    browser = new Browser(world);
    gates = [];
    pages = new Map();
  });

  afterEach(async () => {
    for (const gate of gates) gate.close();
    while (browser.step() || world.turn()) await world.settle();
    world.end();
  });

  /** Open a tab. */
  function open(options) {
    const tab = browser.open();
    const gate = connectOn(tab.platform, "http://gateway.test", { io: gateway.io(tab), ...options });
    pages.set(gate, tab);
    gate.on("a.#", () => {});
    gates.push(gate);
    return gate;
  }

  /** Let everything happen until all gates are connected. */
  async function until(condition) {
    for (let step = 0; !condition(); step++) {
      assert.ok(step < 5000, "not reached");
      if (!(gateway.deliver() || browser.step() || world.turn())) world.timer();
      await world.settle();
    }
  }

  const live = () => gates.every(({ status }) => status === "live");

  /** Open tabs of one user, each with another token of the same rights. */
  async function openLive(count) {
    for (let nth = 1; nth <= count; nth++) open({ token: jwt({ sub: "ann", subscribe: ["#"], jti: String(nth), exp: 4e9 + nth }) });
    await until(live);
  }

  it("of one user with tokens of the same rights have one connection", async () => {
    await openLive(3);
    assert.equal(gateway.clients.size, 1);
    assert.deepEqual(gates.map(({ tabs }) => tabs.role).sort(), ["following", "following", "leading"]);
  });

  it("share where the browser lists no locks, as Firefox in a frame of another site", async () => {
    for (let nth = 0; nth < 2; nth++) {
      const tab = browser.open();
      tab.platform.locks.query = () => Promise.reject(new DOMException("not here", "SecurityError"));
      gates.push(connectOn(tab.platform, "http://gateway.test", { io: gateway.io(tab) }));
    }
    await until(live);
    assert.deepEqual(gates.map(({ tabs }) => tabs.role).sort(), ["following", "leading"]);
  });

  it("connect alone at once where the browser denies them locks, as where cookies are blocked", async () => {
    const tab = browser.open();
    tab.platform.locks.request = () => Promise.reject(new DOMException("not here", "SecurityError"));
    gates.push(connectOn(tab.platform, "http://gateway.test", { io: gateway.io(tab) }));
    const beganMs = world.nowMs;
    await until(live);
    for (const client of gateway.clients) client.cut();
    await until(() => !live());
    await until(live);
    assert.ok(world.nowMs - beganMs < 2500, `after ${world.nowMs - beganMs} ms`);
    assert.equal(gates[0].tabs.role, "alone");
    assert.equal(await gates[0].tabs.claim({ id: "i1" }), true);
  });

  it("connect again when the gateway has not answered in time", async () => {
    const { io } = gateway;
    let isSilent = true;
    gateway.io = (tab) => (...given) => {
      const client = io(tab)(...given);
      const { arrives } = client;
      client.arrives = (...auth) => isSilent || arrives.apply(client, auth);
      return client;
    };
    open({ user: "ann", connectTimeoutMs: 1000 });
    await until(() => gates[0].status === "waiting");
    isSilent = false;
    await until(live);
    assert.deepEqual([gates[0].tabs.role, gateway.clients.size], ["leading", 1]);
    // Nor does one that leaves the shared connection for its own wait longer.
    isSilent = true;
    gates[0].subscribe("b.#", { overflow: "latest" }, () => {});
    await until(() => gates[0].status !== "live");
    isSilent = false;
    await until(live);
  });

  it("ask the gateway for a sign of life when the page of any of them is back", async () => {
    const backs = [];
    Object.assign(globalThis, { addEventListener: (name, listener) => name === "pageshow" && backs.push(listener) });
    await openLive(2);
    Reflect.deleteProperty(globalThis, "addEventListener");
    const [client] = gateway.clients;
    const { mock: asked } = mock.method(client, "answer");
    for (const back of backs) {
      asked.resetCalls();
      back();
      await until(() => asked.callCount());
    }
  });

  it("have another leader and every event within a second after their leader hangs", async () => {
    for (const jti of ["1", "2", "3"]) open({ token: jwt({ sub: "ann", subscribe: ["#"], jti }) });
    const seen = new Map(gates.map((gate) => [gate, []]));
    for (const [gate, offsets] of seen) gate.on("a.#", (_data, { offset }) => offsets.push(offset));
    await until(live);
    const leader = gates.find(({ tabs }) => tabs.role === "leading");
    // Its page does nothing more, and says nothing.
    pages.get(leader).frozen = true;
    const beganMs = world.nowMs;
    for (let n = 0; n < 3; n++) gateway.publish("a");
    await until(() => gates.every((gate) => gate === leader || seen.get(gate).length === 3));
    assert.ok(world.nowMs - beganMs <= 1000, `after ${world.nowMs - beganMs} ms`);
    // It goes on, and leads again when the others are gone.
    pages.get(leader).frozen = false;
    await until(() => leader.tabs.role === "following" && gateway.clients.size === 1);
    for (const gate of gates) if (gate !== leader) gate.close();
    await until(() => leader.tabs.role === "leading");
  });

  /** A follower asks while its leader hangs. @param {(gate: any) => Promise<any>} ask @param {any} outcome of what is lost */
  const withoutLeader = (ask, outcome) => async () => {
    await openLive(2);
    const [leader, follower] = ["leading", "following"].map((role) => gates.find(({ tabs }) => tabs.role === role));
    for (const gate of [leader, follower]) {
      let isOver = false;
      void ask(gate).then(() => (isOver = true));
      await until(() => isOver);
    }
    const lost = assert.rejects(ask(follower), outcome);
    await until(() => gateway.asked.length === 3);
    pages.get(leader).frozen = true;
    const beganMs = world.nowMs;
    let isOver = false;
    void lost.finally(() => (isOver = true)).catch(() => {});
    await until(() => isOver && follower.tabs.role === "leading");
    await lost;
    assert.ok(world.nowMs - beganMs < 5000, "with the connection, not after the time of a request");
    assert.deepEqual([gateway.asked.length, new Set(gateway.asked).size], [3, 3]);
  };

  it(
    "have a request carried out once, of unknown outcome where the leader hangs before its answer is there",
    withoutLeader((gate) => request(gate, "orders.price", 1), ({ code, parts }) => code === "outcome_unknown" && parts.name === "orders.price"),
  );

  it(
    "have an ephemeral publish sent once, and rejected where the leader hangs before its answer is there",
    withoutLeader((gate) => gate.publish("orders.price", 1, { ephemeral: true }), { code: "timeout", parts: { request: "publish" } }),
  );

  it("keep a leader whose page is busy for half a second", async () => {
    await openLive(2);
    const [leader] = gates.filter(({ tabs }) => tabs.role === "leading");
    for (let times = 0; times < 5; times++) {
      const endMs = world.nowMs + 500;
      pages.get(leader).frozen = true;
      await until(() => world.nowMs >= endMs);
      pages.get(leader).frozen = false;
      await until(() => world.nowMs >= endMs + 500);
    }
    assert.equal(leader.tabs.role, "leading");
    assert.equal(gateway.nth, 1);
  });

  it("are present with a connection each, and share one again when they have left", async () => {
    await openLive(3);
    const rooms = gates.slice(1).map((gate) => presence(gate, "rooms.7"));
    const shown = () => rooms.map(({ members }) => members.map(({ connections }) => connections).join());
    await until(() => rooms.every(({ status }) => status === "live") && shown().every((each) => each === "2"));
    assert.equal(gateway.clients.size, 3);
    rooms[0].close();
    await until(() => shown()[1] === "1");
    rooms[1].close();
    await until(() => !gateway.present.size);
    gateway.publish("a.1");
    await until(() => gateway.clients.size === 1);
    assert.ok(live());
  });

  for (const overflow of ["latest", "drop"]) {
    it(`have a connection each for as long as they want the policy ${overflow}`, async () => {
      await openLive(3);
      const policies = () => [...gateway.clients].map(({ subscribed }) => [...subscribed.values()].join()).sort();
      const ended = new AbortController();
      const seen = [];
      gates[2].subscribe("b.#", { overflow, signal: ended.signal }, (_data, { offset }) => seen.push(offset));
      await until(() => gates[2].state.subscriptions["b.#"] === "active");
      assert.deepEqual(policies(), ["", `,${overflow}`]);
      // It connects again with its policy, and not to the leader.
      [...gateway.clients].find(({ subscribed: { size } }) => size > 1).cut();
      await until(() => gates[2].status !== "live");
      await until(live);
      assert.deepEqual(policies(), ["", `,${overflow}`]);
      gateway.publish("b");
      await until(() => seen.length === 1);
      ended.abort();
      await until(() => [...gateway.clients].every(({ subscribed: { size } }) => size === 1));
      gateway.publish("a");
      await until(() => gateway.clients.size === 1);
      gateway.publish("a");
      await until(live);
    });
  }

  it("share one again when a handler that is left wants every event", async () => {
    await openLive(2);
    gates[1].subscribe("b.#", { overflow: "latest" }, () => {});
    await until(() => gateway.clients.size === 2);
    gates[1].subscribe("b.#", () => {});
    await until(() => [...gateway.clients].every(({ subscribed }) => ![...subscribed.values()].some(Boolean)));
    const beat = () => {
      gateway.publish("a");
      if (gateway.clients.size > 1) setTimeout(beat, 1500);
    };
    beat();
    await until(() => gateway.clients.size === 1);
  });

  it("connect each with its own token when that of the leader is refused for good", async () => {
    const { io } = gateway;
    let expired;
    /** The refusals of the time until all tabs have joined the leader. @type {(() => void)[] | undefined} */
    let held = [];
    gateway.io = (tab) => (...given) => {
      const client = io(tab)(...given);
      const { arrives } = client;
      client.arrives = (auth, nth) => {
        if (auth.token !== expired) return arrives.call(client, auth, nth);
        const refuse = () => client._listeners.get("connect_error")(Object.assign(new Error("expired"), { data: { code: "unauthorized", retry: false, reason: "expired" } }));
        if (held) held.push(refuse);
        else refuse();
      };
      return client;
    };
    const tokens = ["1", "2", "3"].map((jti) => jwt({ sub: "ann", subscribe: ["#"], jti }));
    for (const token of tokens) open({ token }).on("connection:refused", () => {});
    await until(live);
    const leader = gates.findIndex(({ tabs }) => tabs.role === "leading");
    expired = tokens[leader];
    for (const client of gateway.clients) client.cut();
    const others = gates.filter((_gate, nth) => nth !== leader);
    await until(() => held?.length && gates.every(({ status }) => status === "resuming"));
    const [refuse] = held;
    held = undefined;
    refuse();
    await until(() => gates[leader].status === "refused" && others.every(({ status }) => status === "live"));
    const beat = () => {
      gateway.publish("a");
      if (gateway.clients.size > 1) setTimeout(beat, 1500);
    };
    beat();
    await until(() => gateway.clients.size === 1);
    assert.deepEqual([gates[leader].tabs.role, others.map(({ tabs }) => tabs.role).sort()], ["alone", ["following", "leading"]]);
    const another = open({ token: jwt({ sub: "ann", subscribe: ["#"], jti: "4" }) });
    for (const gate of others) gate.close();
    await until(() => another.status === "live" && another.tabs.role === "leading");
  });

  it("share one again when presence is refused", async () => {
    await openLive(2);
    gateway.presence = () => ({ ok: false, error: { code: "forbidden", message: "no", retry: false } });
    const room = presence(gates[1], "rooms.7");
    await until(() => room.status === "refused");
    assert.equal(gateway.clients.size, 2);
    gateway.publish("a.1");
    await until(() => gateway.clients.size === 1);
  });

  it("are present again after a broken connection, and report no leaving", async () => {
    await openLive(2);
    const room = presence(gates[1], "rooms.7");
    const reported = [];
    room.on("member:leave", ({ user }) => reported.push(user));
    await until(() => room.status === "live");
    [...gateway.present][0].cut();
    await until(() => room.status !== "live");
    await until(() => room.status === "live");
    assert.deepEqual([reported, room.members.length], [[], 1]);
  });

  for (const [what, options] of Object.entries({
    "of another user": { token: jwt({ sub: "ben", subscribe: ["#"] }) },
    "with other rights": { token: jwt({ sub: "ann", subscribe: ["a.#"] }) },
    "of another namespace": { token: jwt({ sub: "ann", subscribe: ["#"] }), namespace: "other" },
    "with a token that names nobody": { token: "opaque" },
  })) {
    it(`${what} have a connection of their own`, async () => {
      open({ token: jwt({ sub: "ann", subscribe: ["#"] }) });
      open(options);
      await until(live);
      assert.equal(gateway.clients.size, 2);
    });
  }

  it("with tokens that do not name the user share where the application names it", async () => {
    open({ token: "one", user: "ann" });
    open({ token: "other", user: "ann" });
    await until(live);
    assert.equal(gateway.clients.size, 1);
  });

  it("show no token to each other", async () => {
    const texts = [];
    browser.overheard = (message) => texts.push(JSON.stringify(message));
    const token = jwt({ sub: "ann" });
    open({ token });
    open({ token });
    await until(live);
    assert.ok(texts.length > 2);
    assert.deepEqual(texts.filter((text) => text.includes(token)), []);
  });

  it("keep a subscription at the gateway as long as one of them needs it", async () => {
    open({ user: "ann" });
    const other = open({ user: "ann" });
    await until(live);
    other.on("b.#", () => {});
    await until(() => other.state.subscriptions["b.#"] === "active");
    const [client] = gateway.clients;
    assert.deepEqual([...client.subscribed.keys()].sort(), ["a.#", "b.#"]);
    other.off("a.#").off("b.#");
    await until(() => client.subscribed.size === 1);
    assert.deepEqual([...client.subscribed.keys()], ["a.#"]);
  });

  it("have the places of a leader that uses its own connection, because the shared one has none for it", async () => {
    gateway.limit = 3;
    await openLive(2);
    const [leader, follower] = ["leading", "following"].map((role) => gates.find(({ tabs }) => tabs.role === role));
    const [shared] = gateway.clients;
    const follow = async (gate, pattern) => {
      gate.on(pattern, () => {});
      await until(() => gate.state.subscriptions[pattern] === "active");
    };
    await follow(leader, "b.#");
    await follow(follower, "c.#");
    await follow(leader, "d.#");
    await follow(follower, "e.#");
    assert.deepEqual([[...shared.subscribed.keys()], gateway.clients.size], [["a.#", "c.#", "e.#"], 2]);
  });

  it("leave a gateway that drains only when the requests of each are answered, so that their outcomes are known", async () => {
    await openLive(2);
    const [client] = gateway.clients;
    const began = gateway.nth;
    client.holds = true;
    const receipts = [];
    for (const gate of gates) void gate.publish("a.b", 1).then(({ offset }) => receipts.push(offset));
    client.moving();
    let timers = 0;
    await until(() => {
      timers += !client.busy();
      return timers > 50;
    });
    client.holds = false;
    await until(() => receipts.length === 2 && gateway.nth > began && live());
    assert.deepEqual([receipts.length, gateway.clients.size], [2, 1]);
  });

  it("give an event to one that claims it", async () => {
    await openLive(3);
    const answers = [];
    for (const { tabs } of gates) void tabs.claim({ id: "i1" }).then((mine) => answers.push(mine));
    await until(() => answers.length === 3);
    assert.deepEqual(answers.sort(), [false, false, true]);
  });
});

describe("a browser without locks or channels", () => {
  it("gives each tab its own connection, and says so once", async (test) => {
    const reported = test.mock.method(console, "info", () => {});
    const gateway = new FakeGateway();
    const gate = connectOn(undefined, "http://gateway.test", { io: gateway.io });
    await gateway.welcome();
    assert.equal(gate.tabs.role, "alone");
    assert.equal(await gate.tabs.claim({ id: "i1" }), true);
    assert.equal(reported.mock.callCount(), 1);
    gate.close();
    assert.equal(await gate.tabs.claim({ id: "i2" }), false, "another tab may");
    for (const options of [null, "t"]) assert.throws(() => connectOn(undefined, "http://gateway.test", options), /^TypeError: headgate: connect: options must be object, not /);
    mock.restoreAll();
  });
});
