/**
 * Received or reported: the whole client through random histories of cuts, stalls, overflows, refused and failing tokens, drains, trimmed
 * and lost logs, logs that lose their end or continue in another epoch, pasts that overlap, and repairs. HEADGATE_HISTORIES sets how many (`make fuzz`:
 * 100,000), HEADGATE_SEED tries one.
 */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { connect } from "#headgate";
import { Oracle, World } from "./model-gateway.js";

const HISTORIES = Number(process.env.HEADGATE_HISTORIES ?? 120);
const STEPS = 60;
/** Steps after which a client that meets no more faults must have everything. */
const SETTLE_STEPS = 5000;
/** Timers that run when nothing else is left, because a repair may wait for one. */
const CALM_STEPS = 8;

/** The greatest weight of each action. Each history draws its own below it, so that rare mixtures have their share. */
const ORDINARY = { deliver: 20, turn: 4, timer: 4, publish: 4, send: 3, burst: 4, slow: 2 };
const FAULTS = {
  cut: 3, lose: 2, trim: 2, ask: 8, moving: 2, refuse: 2, fail: 2, silence: 2, badToken: 2, heartbeat: 2, open: 2, join: 2, past: 2, again: 1, drop: 2, full: 3, behind: 2, roll: 2, rollBack: 3, doubt: 2, reauthorize: 3,
  newest: 2, want: 2, unwant: 2, leave: 2,
};

/**
 * Beside histories of everything: some of long pasts, some of pasts that overlap, and some of repairs. Topics of the publishes, actions that come more
 * often, and the only faults that come, where others would keep the page from being connected.
 */
const KINDS = [
  { topics: "abcac", often: [] },
  { topics: "abbcb", often: ["publish", "deliver", "cut", "rollBack"], past: true },
  { topics: "abc", often: ["past", "past", "again", "publish", "timer", "deliver", "deliver", "cut"], only: ["past", "again", "join", "drop", "cut", "behind", "roll", "rollBack", "doubt", "reauthorize", "heartbeat"], overlap: true },
  { topics: "ddca", often: ["burst", "newest", "want", "unwant", "deliver", "deliver", "cut", "full"], only: ["newest", "want", "unwant", "leave", "full", "behind", "cut", "roll", "rollBack", "heartbeat", "reauthorize", "join"], newest: true },
  { topics: "cccca", often: ["full", "full", "timer", "timer", ...Array(20).fill("deliver")], only: ["full", "behind", "cut", "roll", "rollBack", "heartbeat", "ask"], drop: true },
];

/** Events for the client alone that handlers saw, in all histories. */
let sends = 0;
/** Events of which the page has said that its handlers had them, in all histories. */
let answers = 0;
/** Patterns that were refused or ended because the application's function raised, in all histories. */
let ended = 0;

async function history(seed) {
  const world = new World(seed);
  const { gateway } = world;
  /** Patterns that the page listens to, and the oracle of each. */
  const oracles = new Map();
  /** Patterns of which events may come late. */
  const late = new Set();
  /** Those of patterns for which the page had no position when it was asked. */
  const early = new Set();
  /** Errors that a handler would have to throw. The client reports those, and continues. */
  const faults = [];
  let badToken = false;
  let costMs = 0;
  const attempt = (act) => {
    try {
      act();
    } catch (error) {
      faults.push(error);
    }
  };
  const all = (act) => {
    for (const oracle of oracles.values()) attempt(() => act(oracle));
  };
  gateway.resumes = (...at) => all((oracle) => oracle.resumed(...at));
  gateway.isPromised = (pattern) => oracles.get(pattern)?.base;
  // The page cannot tell an offset of another epoch from one that the log has lost.
  gateway.began = (pattern, position) => oracles.get(pattern)?.began([null, position.epoch].includes(gate.state.epoch) ? position : null);
  gateway.ended = (pattern) => {
    ended++;
    // What is made up for may follow later events that came for another pattern, also for a handler that comes before the page knows.
    late.add(pattern);
    if (oracles.has(pattern)) oracles.get(pattern).ordered = false;
  };
  gateway.handled = (entry) => {
    answers++;
    if (![...oracles.values()].some((oracle) => oracle.had(entry))) faults.push(new Error(`says that it has handled ${entry.epoch}-${entry.offset}`));
  };
  const gate = connect("http://gateway.test", {
    io: gateway.io,
    token: () => (badToken ? Promise.reject(undefined) : "t"),
    inboxLimit: 2 + world.below(8),
    reconnectDelayMinMs: 1,
    reconnectDelayMaxMs: 20,
    connectTimeoutMs: 50,
  });
  const listen = (pattern, options = {}) => {
    if (oracles.has(pattern)) return;
    const { since, overflow } = options;
    const { epoch, offset } = gate.state;
    // An offset is of the epoch in which the page is, up to its position. A repair may bring what a full queue has left out before.
    // That of the last so many is known once the gateway has named it.
    const asked = !since || overflow ? null : since.last ? undefined : { epoch: epoch ?? gateway.epoch, offset: Math.min(since.offset, offset ?? Infinity) };
    const newest = overflow === "latest";
    const oracle = new Oracle(gateway, pattern, !since && overflow !== "drop" && !late.has(pattern), asked, newest);
    if (gate.state.subscriptions[pattern] === "active") oracle.base = { epoch, offset };
    oracles.set(pattern, oracle);
    oracle.newFrom = offset ?? Infinity;
    if (offset === null) early.add(oracle);
    let lastSent = 0;
    oracle.subscription = gate.subscribe(pattern, options, (data, { offset, replayed }) => {
      if (oracles.get(pattern) !== oracle) faults.push(new Error(`${pattern}: called after it has left`));
      world.nowMs += costMs;
      if (data.sent) {
        // It has no place in the log. It comes once and in its order, and nothing else may be different for it.
        if (offset !== null || data.sent <= lastSent) faults.push(new Error(`sent ${data.sent} with offset ${offset}, behind ${lastSent}`));
        lastSent = data.sent;
        sends++;
        return;
      }
      attempt(() => oracle.saw(data, replayed && offset > gate.state.offset, replayed && offset < gate.state.offset));
    });
  };
  /** More handlers of patterns, each with its own wishes. */
  const more = [];
  const pick = (from) => from[world.below(from.length)];
  const somewhere = () => (world.below(3) ? { offset: world.below(gateway.head + 1) } : { last: 1 + world.below(6) });
  const { topics, often, past, drop, overlap, newest, only } = KINDS[world.below(KINDS.length)];
  const publish = () => gateway.publish(pick(topics));
  listen("a.#");
  if (drop) listen("c.#", { overflow: "drop" });
  if (newest) listen("d.#", { overflow: "latest", repair: world.below(2) === 1 });
  if (past) {
    for (let n = world.below(16); n >= 0; n--) publish();
    listen("*", { since: { offset: world.below(4) } });
  }
  if (overlap) {
    for (let n = world.below(16); n >= 0; n--) publish();
    for (const pattern of ["*", "b.#", "#"]) if (world.below(2)) listen(pattern, world.below(2) ? { since: somewhere() } : {});
  }
  gate.on("delivery:gap", (gap) => all((oracle) => oracle.reported(gap))).on("delivery:error connection:refused", () => {});
  gate.on("state:change", ({ subscriptions, epoch, offset }) => {
    all((oracle) => subscriptions[oracle.pattern] === "active" && oracle.promised());
    if (offset === null) return;
    for (const oracle of early) if (offset < (oracle.asked?.offset ?? 0)) oracle.asked = { epoch, offset };
    early.clear();
  });

  const actions = {
    deliver: () => gateway.deliver(),
    turn: () => world.turn(),
    timer: () => world.timer(),
    publish,
    ask: () => gateway.ask(),
    send: () => gateway.send(pick(topics)),
    burst: () => {
      for (let n = world.below(12); n >= 0; n--) publish();
    },
    slow: () => (costMs = world.below(2) ? 0 : 13),
    cut: () => gateway.cut(),
    lose: () => gateway.lose(),
    roll: () => gateway.roll(0),
    rollBack: () => gateway.roll(1 + world.below(world.below(2) ? 4 : 16)),
    trim: () => gateway.trim(),
    moving: () => gateway.moving(),
    heartbeat: () => gateway.heartbeat(),
    full: () => {
      gateway.full();
      if (drop) actions.burst();
    },
    behind: () => gateway.behind(),
    doubt: () => (gateway.doubts = !gateway.doubts),
    reauthorize: () => {
      const { doubts } = gateway;
      gateway.doubts = true;
      gateway.reauthorize();
      gateway.doubts = doubts;
    },
    refuse: () => (gateway.next = "refuse"),
    fail: () => (gateway.next = "fail"),
    silence: () => (gateway.next = "silence"),
    badToken: () => (badToken = !badToken),
    open: () => gate.open(),
    join: () => listen("b.#"),
    past: () => listen(pick(["*", "#", "b.#"]), { since: somewhere() }),
    again: () => {
      const pattern = pick([...oracles.keys()]);
      oracles.get(pattern).past();
      gate.subscribe(pattern, { since: somewhere() }, () => {});
    },
    newest: () => listen("d.#", { overflow: "latest", repair: world.below(2) === 1 }),
    want: () => more.push(gate.subscribe(pick([...oracles.keys()]), { overflow: pick(["catch_up", "latest", "drop"]), repair: world.below(2) === 1 }, () => {})),
    unwant: () => more.splice(world.below(more.length), 1)[0]?.close(),
    leave: () => {
      const pattern = pick([...oracles.keys()]);
      if (pattern === "a.#") return;
      const { subscription } = oracles.get(pattern);
      oracles.delete(pattern);
      delete gateway.acknowledged[pattern];
      subscription.close();
    },
    drop: () => listen("c.#", { overflow: "drop", ...(world.below(2) && { since: somewhere() }) }),
  };
  const possible = Object.entries({ ...ORDINARY, ...FAULTS }).filter(([name]) => name in ORDINARY || !only || only.includes(name));
  const bag = possible.flatMap(([name, most]) => Array(world.below(most + 1)).fill(name));
  bag.push("deliver", ...often);
  // The connection's one word and where the client stands against the log are in two tables, which must agree.
  const agree = () => {
    const { status, position } = gate.state;
    const positions = { live: ["live"], catching_up: ["catching_up", "announced"] }[status];
    if (positions && !positions.includes(position)) faults.push(new Error(`${status}, but its position is ${position}`));
  };
  while (only && gate.state.connection !== "up") {
    if (!gateway.deliver() && !world.turn()) world.timer();
    await world.settle();
  }
  for (let step = 0; step < STEPS && !faults.length; step++) {
    const name = bag[world.below(bag.length)];
    world.trail.push(name);
    actions[name]();
    await world.settle();
    agree();
  }
  // No more faults, so everything must come, in bounded time.
  badToken = false;
  gateway.next = "accept";
  gateway.doubts = false;
  gateway.relieve();
  const isRetrying = () => Object.values(gate.state.subscriptions).includes("retrying");
  const done = () => !isRetrying() && gate.state.connection === "up" && !gate.state.waiting && gate.state.position === "live" && gate.state.offset === gateway.head && gate.state.epoch === gateway.epoch;
  let calm = 0;
  for (let step = 0; calm < CALM_STEPS; step++) {
    if (step > SETTLE_STEPS) faults.push(new Error(`does not settle: ${JSON.stringify(gate.state)}, head ${gateway.head}`));
    agree();
    if (faults.length) break;
    if (gate.state.connection === "refused") gate.open();
    if (gate.state.connection === "up" && world.below(4) === 0) gateway.heartbeat();
    // A turn before a timer, because virtual time would let attempts run out while the page has something to do.
    const moved = gateway.deliver() || world.turn();
    if (!moved) world.timer();
    calm = moved || !done() ? 0 : calm + 1;
    await world.settle();
  }
  if (!faults.length) all((oracle) => oracle.end());
  gate.close();
  await world.settle();
  world.end();
  return { faults, world };
}

describe("whatever happens, an event", () => {
  it(`is received in order and once, or reported, before anything later (${HISTORIES} histories)`, async () => {
    const first = Number(process.env.HEADGATE_SEED ?? 1);
    const last = process.env.HEADGATE_SEED ? first : HISTORIES;
    // The first one in a process loads parts of the client, which takes real time, so it is not the same again.
    await history(first);
    for (let seed = first; seed <= last; seed++) {
      const { faults, world } = await history(seed);
      assert.equal(faults.length, 0, `seed ${seed}: ${faults[0]?.message}\n${world.trail.join(" ")}`);
    }
    if (last - first >= 99) assert.ok(sends > 0 && answers > 0 && ended > 0);
  });
});
