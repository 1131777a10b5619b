/** Tabs that share a connection: which ones do, what their messages hold, and claims. The browser and the gateway are those of tabs-world.js. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it, mock } from "node:test";
import { connectOn } from "../src/tabs/connect.js";
import { FakeGateway } from "./fake-gateway.js";
import { World } from "./model-gateway.js";
import { Browser, Gateway } from "./tabs-world.js";

const jwt = (claims) => `e30.${btoa(JSON.stringify(claims))}.c2ln`;

describe("tabs", () => {
  let world, gateway, browser, gates;

  beforeEach(() => {
    world = new World(1);
    gateway = new Gateway(world);
    browser = new Browser(world);
    gates = [];
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

  it("of one user with tokens of the same rights have one connection", async () => {
    for (const jti of ["1", "2", "3"]) open({ token: jwt({ sub: "ann", subscribe: ["#"], jti, exp: 4e9 + Number(jti) }) });
    await until(live);
    assert.equal(gateway.clients.size, 1);
    assert.deepEqual(gates.map(({ tabs }) => tabs.role).sort(), ["following", "following", "leading"]);
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

  it("with tokens that name nobody share where the application names the user", async () => {
    open({ token: "one", user: "ann" });
    open({ token: "other", user: "ann" });
    await until(live);
    assert.equal(gateway.clients.size, 1);
  });

  it("show no token to each other", async () => {
    const said = [];
    browser.overheard = (message) => said.push(JSON.stringify(message));
    const token = jwt({ sub: "ann" });
    open({ token });
    open({ token });
    await until(live);
    assert.ok(said.length > 2);
    assert.deepEqual(said.filter((text) => text.includes(token)), []);
  });

  it("keep a subscription at the gateway as long as one of them needs it", async () => {
    open({ user: "ann" });
    const other = open({ user: "ann" });
    await until(live);
    other.on("b.#", () => {});
    await until(() => other.state.subscriptions["b.#"] === "active");
    const [client] = gateway.clients;
    assert.deepEqual([...client.patterns].sort(), ["a.#", "b.#"]);
    other.off("a.#").off("b.#");
    await until(() => client.patterns.size === 1);
    assert.deepEqual([...client.patterns], ["a.#"]);
  });

  it("give an event to one that claims it", async () => {
    for (let n = 0; n < 3; n++) open({ user: "ann" });
    await until(live);
    const answers = [];
    for (const { tabs } of gates) void tabs.claim({ id: "i1" }).then((mine) => answers.push(mine));
    await until(() => answers.length === 3);
    assert.deepEqual(answers.sort(), [false, false, true]);
  });
});

describe("a browser without locks or channels", () => {
  it("gives each tab its own connection, and says so once", async (test) => {
    const told = test.mock.method(console, "info", () => {});
    const gateway = new FakeGateway();
    const gate = connectOn(undefined, "http://gateway.test", { io: gateway.io });
    await gateway.welcome();
    assert.equal(gate.tabs.role, "alone");
    assert.equal(await gate.tabs.claim({ id: "i1" }), true);
    assert.equal(told.mock.callCount(), 1);
    gate.close();
    mock.restoreAll();
  });
});
