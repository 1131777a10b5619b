/**
 * Received or told: the whole client through random histories of cuts, stalls, overflows, refused and failing
 * tokens, drains, trimmed and lost logs. HEADGATE_HISTORIES sets how many (`make fuzz`: 100,000), HEADGATE_SEED tries one.
 */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { connect } from "#headgate";
import { Oracle, World } from "./model-gateway.js";

const HISTORIES = Number(process.env.HEADGATE_HISTORIES ?? 3000);
const STEPS = 60;
/** Steps after which a client that meets no more faults must have everything. */
const SETTLE_STEPS = 5000;

/** The greatest weight of each action. Each history draws its own below it, so that rare mixtures have their share. */
const ORDINARY = { deliver: 12, turn: 4, timer: 4, publish: 4, burst: 4, slow: 2 };
const FAULTS = { cut: 3, lose: 2, trim: 2, moving: 2, refuse: 2, fail: 2, silence: 2, badToken: 2, heartbeat: 2, open: 2, join: 2 };

async function history(seed) {
  const world = new World(seed);
  const { gateway } = world;
  const told = [];
  const oracles = { a: new Oracle(gateway, "a", told), b: new Oracle(gateway, "b", told) };
  /** Errors that a handler would have to throw: the client reports those, and goes on. */
  const faults = [];
  let badToken = false;
  let joined = false;
  let costMs = 0;
  const gate = connect("http://gateway.test", {
    io: gateway.io,
    token: () => (badToken ? Promise.reject(undefined) : "t"),
    inboxLimit: 2 + world.below(8),
    reconnectDelayMinMs: 1,
    reconnectDelayMaxMs: 20,
    connectTimeoutMs: 50,
  });
  const listen = (topic) =>
    gate.on(`${topic}.#`, (data) => {
      world.nowMs += costMs;
      try {
        oracles[topic].saw(data);
      } catch (error) {
        faults.push(error);
      }
    });
  const acknowledge = () => {
    for (const topic of ["a", "b"]) if (gate.state.subscriptions[`${topic}.#`] === "active") oracles[topic].promised();
  };
  listen("a");
  gate.on("delivery:gap", (gap) => told.push(gap)).on("state:change", acknowledge).on("delivery:error connection:refused", () => {});

  const actions = {
    deliver: () => gateway.deliver(),
    turn: () => world.turn(),
    timer: () => world.timer(),
    publish: () => gateway.publish(world.below(2) ? "a" : "b"),
    burst: () => {
      for (let n = world.below(12); n >= 0; n--) gateway.publish("a");
    },
    slow: () => (costMs = world.below(2) ? 0 : 13),
    cut: () => gateway.cut(),
    lose: () => gateway.lose(),
    trim: () => gateway.trim(),
    moving: () => gateway.moving(),
    heartbeat: () => gateway.heartbeat(),
    refuse: () => (gateway.next = "refuse"),
    fail: () => (gateway.next = "fail"),
    silence: () => (gateway.next = "silence"),
    badToken: () => (badToken = !badToken),
    open: () => gate.open(),
    join() {
      if (!joined) listen("b");
      joined = true;
    },
  };
  const bag = Object.entries({ ...ORDINARY, ...FAULTS }).flatMap(([name, most]) => Array(world.below(most + 1)).fill(name));
  bag.push("deliver");
  for (let step = 0; step < STEPS && !faults.length; step++) {
    const name = bag[world.below(bag.length)];
    world.trail.push(name);
    actions[name]();
    await world.settle();
  }
  // No more faults: everything must come, in bounded time.
  badToken = false;
  gateway.next = "accept";
  const done = () => gate.state.connection === "up" && !gate.state.waiting && gate.state.offset === gateway.head && gate.state.epoch === gateway.epoch;
  for (let step = 0; !done() || gateway.deliver(); step++) {
    if (step > SETTLE_STEPS) faults.push(new Error(`does not settle: ${JSON.stringify(gate.state)}, head ${gateway.head}`));
    if (faults.length) break;
    if (gate.state.connection === "refused") gate.open();
    if (gate.state.connection === "up" && world.below(4) === 0) gateway.heartbeat();
    // A turn before a timer: virtual time would let attempts run out while the page has something to do.
    if (!gateway.deliver() && !world.turn()) world.timer();
    await world.settle();
  }
  if (!faults.length) {
    for (const oracle of Object.values(oracles)) oracle.check(gateway.epoch);
  }
  gate.close();
  await world.settle();
  world.end();
  return { faults, world };
}

describe("whatever happens, an event", () => {
  it(`is received in order and once, or told, before anything later (${HISTORIES} histories)`, async () => {
    const first = Number(process.env.HEADGATE_SEED ?? 1);
    const last = process.env.HEADGATE_SEED ? first : HISTORIES;
    for (let seed = first; seed <= last; seed++) {
      const { faults, world } = await history(seed);
      assert.equal(faults.length, 0, `seed ${seed}: ${faults[0]?.message}\n${world.trail.join(" ")}`);
    }
  });
});
