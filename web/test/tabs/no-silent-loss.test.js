/**
 * Received or reported, in every tab: tabs that share one connection, through random histories of crashes, frozen and slow tabs, stolen
 * locks, cuts, trimmed, rolled-back and lost logs, and pasts. A publishing tab learns when the event was appended once, and else that it
 * may not have been. HEADGATE_TABS_HISTORIES sets how many (`make fuzz`: 3,000), HEADGATE_SEED tries one.
 */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { connectOn } from "../../src/tabs/connect.js";
import { Oracle, World } from "../model-gateway.js";
import { Browser, Gateway } from "./world.js";

const HISTORIES = Number(process.env.HEADGATE_TABS_HISTORIES ?? 30);
const STEPS = 150;
const MOST_TABS = 4;
/** Steps after which tabs that meet no more faults must have everything, and one connection. */
const SETTLE_STEPS = 20_000;
const CALM_STEPS = 8;
/** The pattern that some tabs subscribe to with another policy than `catch_up`. */
const OF_POLICY = "c.#";

const ORDINARY = { deliver: 20, browser: 20, turn: 6, timer: 4, publish: 5, burst: 3, slow: 2 };
const FAULTS = { cut: 2, trim: 1, moving: 1, heartbeat: 3, open: 2, join: 2, leave: 1, past: 2, policy: 1, kill: 2, freeze: 2, thaw: 3, rest: 1, roll: 1, rollBack: 1, lose: 1, close: 1, say: 4 };

async function history(seed) {
  const world = new World(seed);
  const gateway = new Gateway(world);
  // As many patterns as one tab may have, and fewer than all of them have.
  if (seed % 3 === 2) gateway.limit = 2;
  const browser = new Browser(world, [undefined, 8, 16][world.below(3)]);
  const faults = [];
  const tabs = [];
  const attempt = (act) => {
    try {
      act();
    } catch (error) {
      faults.push(error);
    }
  };

  const alive = () => tabs.filter(({ tab, gate }) => tab.alive && gate.status !== "closed");

  function openTab() {
    if (alive().length >= MOST_TABS) return;
    const tab = browser.open();
    const oracles = new Map();
    const each = { tab, oracles, costMs: 0 };
    /** The promise begins where the log stands when the application learns that a subscription is active. */
    const known = { lines: gateway.lines, acknowledged: {} };
    for (const name of ["history", "epoch", "head"]) Object.defineProperty(known, name, { get: () => gateway[name] });
    const all = (act) => {
      if (tab.alive) for (const oracle of oracles.values()) attempt(() => act(oracle));
    };
    each.gate = connectOn(tab.platform, "http://gateway.test", {
      io: gateway.io(tab), inboxLimit: 4 + world.below(30), reconnectDelayMinMs: 1, reconnectDelayMaxMs: 20, connectTimeoutMs: 5000, requestTimeoutMs: 5000,
    });
    each.listen = (pattern, options = {}) => {
      if (oracles.has(pattern)) return;
      const oracle = new Oracle(known, pattern, !options.since);
      // A past that begins after the end of a log, as after a log was lost, begins there.
      oracle.since = options.since?.offset ?? 0;
      oracles.set(pattern, oracle);
      each.gate.subscribe(pattern, options, (data) => {
        world.nowMs += each.costMs;
        if (tab.alive) attempt(() => oracle.saw(data));
      });
    };
    each.all = all;
    each.leave = (pattern) => {
      each.gate.off(pattern);
      oracles.delete(pattern);
      delete known.acknowledged[pattern];
    };
    each.gate.on("delivery:gap", (gap) => all((oracle) => oracle.reported(gap))).on("delivery:error connection:refused", () => {});
    each.gate.on("state:change", ({ subscriptions }) =>
      all((oracle) => {
        if (subscriptions[oracle.pattern] !== "active") return;
        known.acknowledged[oracle.pattern] ??= { epoch: gateway.epoch, offset: Math.max(gateway.head, oracle.since) };
        oracle.promised();
      }),
    );
    each.listen(`${"ab"[world.below(2)]}.#`);
    tabs.push(each);
  }

  const one = () => alive()[world.below(alive().length)];
  const end = (each) => {
    browser.kill(each.tab);
    for (const client of [...gateway.clients]) if (client.tab === each.tab) client.cut();
  };
  /** The publishes of tabs, and their outcomes. @type {Map<number, { tab: object, reported: string }>} */
  const texts = new Map();
  const publish = () => gateway.publish("abc"[world.below(3)]);
  openTab();
  const actions = {
    deliver: () => gateway.deliver(),
    browser: () => browser.step(),
    turn: () => world.turn(),
    timer: () => world.timer(),
    publish,
    burst: () => {
      for (let n = world.below(20); n >= 0; n--) publish();
    },
    slow: () => Object.assign(one() ?? {}, { costMs: world.below(2) ? 0 : 13 }),
    cut: () => gateway.any()?.cut(),
    trim: () => gateway.trim(),
    moving: () => gateway.any()?.moving(),
    heartbeat: () => gateway.any()?.heartbeat(),
    open: openTab,
    join: () => one()?.listen(`${"abc"[world.below(3)]}.#`),
    leave: () => {
      const each = one();
      const [pattern] = each?.oracles.keys() ?? [];
      if (pattern) each.leave(pattern);
    },
    past: () => one()?.listen("*", { since: { offset: world.below(gateway.head + 1) } }),
    policy: () => {
      const each = one();
      if (!each || each.oracles.has(OF_POLICY)) return;
      each.hasPolicy = true;
      each.listen(OF_POLICY, { overflow: world.below(2) ? "latest" : "drop" });
    },
    kill: () => one() && end(one()),
    freeze: () => {
      const each = one();
      if (!each || each.tab.frozen) return;
      if (world.below(2)) browser.tell(each.tab, "freeze");
      each.tab.frozen = true;
    },
    thaw: () => {
      const each = alive().find(({ tab }) => tab.frozen);
      if (!each) return;
      each.tab.frozen = false;
      browser.tell(each.tab, "resume");
    },
    rest: () => {
      const each = one();
      if (each) browser.tell(each.tab, world.below(2) ? "pagehide" : "pageshow");
    },
    roll: () => gateway.roll(0),
    rollBack: () => gateway.roll(1 + world.below(world.below(2) ? 4 : 16)),
    lose: () => gateway.lose(),
    say: () => {
      const each = one();
      if (!each) return;
      const n = texts.size;
      const fate = { tab: each.tab, reported: "" };
      texts.set(n, fate);
      const id = world.below(2) ? `said-${n}` : undefined;
      each.gate.publish("abc"[world.below(3)], n, { id }).then(
        () => (fate.reported = "published"),
        ({ code }) => (fate.reported = code),
      );
    },
    close: () => {
      const each = one();
      if (!each) return;
      each.oracles.clear();
      each.gate.close();
    },
  };
  const bag = Object.entries({ ...ORDINARY, ...FAULTS }).flatMap(([name, most]) => Array(world.below(most + 1)).fill(name));
  bag.push("deliver", "browser", "open");
  for (let step = 0; step < STEPS && !faults.length; step++) {
    const name = bag[world.below(bag.length)];
    world.trail.push(name);
    actions[name]();
    await world.settle();
  }
  // No more faults, so everything must come to every tab, over one connection, in bounded time.
  if (!alive().length) openTab();
  for (const each of alive()) {
    // It would keep a separate connection.
    if (each.hasPolicy && each.oracles.has(OF_POLICY)) each.leave(OF_POLICY);
    each.tab.frozen = false;
    browser.tell(each.tab, "pageshow");
    browser.tell(each.tab, "resume");
  }
  const even = ({ gate: { state } }) => state.connection === "up" && !state.waiting && state.offset === gateway.head && state.epoch === gateway.epoch;
  /** Each tab has as many of its patterns as a client may have, if need be on a separate connection. */
  const served = ({ oracles, gate: { state } }) => Object.values(state.subscriptions).filter((each) => each === "active").length === Math.min(oracles.size, gateway.limit ?? Infinity);
  const done = () => alive().every((each) => even(each) && served(each)) && (gateway.limit || gateway.clients.size === 1);
  let calm = 0;
  for (let step = 0; calm < CALM_STEPS && !faults.length; step++) {
    if (step > SETTLE_STEPS) faults.push(new Error(`does not settle: [${gateway.describe()}], head ${gateway.head} ${JSON.stringify(alive().map(({ gate }) => [gate.tabs.role, gate.state]))}`));
    if (world.below(8) === 0) gateway.any()?.heartbeat();
    if (step % 500 === 499) publish();
    const moved = gateway.deliver() || browser.step() || world.turn();
    if (!moved) world.timer();
    calm = done() ? calm + (moved ? 0 : 1) : 0;
    await world.settle();
  }
  if (!faults.length) for (const each of alive()) each.all((oracle) => oracle.end());
  const settled = () => [...texts.values()].every(({ tab, reported }) => reported || !tab.alive);
  for (let step = 0; !settled() && step < SETTLE_STEPS; step++) {
    if (!(gateway.deliver() || browser.step() || world.turn())) world.timer();
    await world.settle();
  }
  for (const [n, { tab, reported }] of texts) {
    const times = gateway.appended.get(n) ?? 0;
    if (times > 1 || (reported === "published" && !times)) faults.push(new Error(`publish ${n} was told as "${reported}", and is ${times} times in the log`));
    if (!reported && tab.alive) faults.push(new Error(`nobody was told of publish ${n}`));
  }
  for (const { gate } of tabs) gate.close();
  while (browser.step() || world.turn()) await world.settle();
  await world.settle();
  world.end();
  return { faults, world };
}

describe("whatever happens to tabs that share a connection, an event", () => {
  it(`is received by each in order and once, or reported, before anything later (${HISTORIES} histories)`, async () => {
    const first = Number(process.env.HEADGATE_SEED ?? 1);
    const last = process.env.HEADGATE_SEED ? first : HISTORIES;
    for (let seed = first; seed <= last; seed++) {
      const { faults, world } = await history(seed);
      assert.equal(faults.length, 0, `seed ${seed}: ${faults[0]?.stack}\n${world.trail.join(" ")}`);
    }
  });
});
