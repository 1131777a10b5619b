/**
 * A page that loads and follows converges: `load` through random histories of writes, answers that were read early and arrive late, cuts, gaps,
 * lost logs, pasts of other handlers and pages that leave. HEADGATE_HISTORIES sets how many, HEADGATE_SEED tries one.
 */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { connect, load } from "#headgate";
import { World } from "./model-gateway.js";

const HISTORIES = Number(process.env.HEADGATE_HISTORIES ?? 80);
const STEPS = 60;
/** Steps after which a page that meets no more faults must be right. */
const SETTLE_STEPS = 5000;
/** Timers that run when nothing else is left, because a fetch may wait for one. */
const CALM_STEPS = 8;

/** The greatest weight of each action. Each history draws its own below it. */
const ACTIONS = {
  deliver: 20, turn: 4, timer: 4, commit: 6, publish: 6, read: 8, answer: 8, refuseFetch: 2, hang: 1, cut: 3, lose: 2, trim: 2, roll: 2, rollBack: 2, behind: 2, moving: 1, refuse: 1, past: 2, replay: 2, leave: 1,
};

/** The database of an application: rows by key, their writes in the order in which they are published, and requests of the page. */
class Application {
  rows = new Map();
  /** Committed and not yet published. */
  queue = [];
  /** Fetches of the page: {resolve, reject, answer?}. */
  requests = [];
  #writes = 0;

  constructor(gateway, names) {
    this.gateway = gateway;
    this.names = names;
  }

  commit(key) {
    this.rows.set(key, ++this.#writes);
    this.queue.push([key, this.#writes]);
  }

  publish() {
    const [key, value] = this.queue.shift() ?? [];
    if (!key) return false;
    this.gateway.publish(key);
    this.gateway.log.at(-1).value = value;
    return true;
  }

  /** The server's reads: its place in the log first, if it names one, then the rows. */
  read() {
    const { epoch, head: offset } = this.gateway;
    return { rows: [...this.rows], ...(this.names && { position: { epoch, offset } }) };
  }

  fetch = () => new Promise((resolve, reject) => this.requests.push({ resolve, reject }));

  /** The log has lost its end, so publish the lost events, as an outbox does. */
  repeat(lost) {
    for (const { topic } of lost) this.queue.push([topic, this.rows.get(topic)]);
  }
}

/** A page without `load` fetches when the subscription is active, and again at `resync`. */
function loadByHand(gate, pattern, fetch, { reset, apply }) {
  const load = () => fetch().then(reset, load);
  const { close } = gate.subscribe(pattern, apply);
  gate.subscribed(pattern).then(load, () => {});
  gate.on("delivery:gap", ({ lost }) => lost && load());
  return { close, status: "current" };
}

/** Live through a history. Return the fault at the end, if there is one. */
async function history(seed, load) {
  const world = new World(seed);
  const { gateway } = world;
  const application = new Application(gateway, world.below(2) === 1);
  const faults = [];
  const topic = () => "abc"[world.below(3)];
  const gate = connect("http://gateway.test", { io: gateway.io, reconnectDelayMinMs: 1, reconnectDelayMaxMs: 20, connectTimeoutMs: 50, inboxLimit: 2 + world.below(8) });
  gate.on("delivery:error connection:refused", () => {});
  let rows = new Map();
  let page;
  const enter = (since) => {
    let isOpen = true;
    const unlessLeft = (act) => (...args) => (isOpen ? act(...args) : faults.push(new Error("called after the page had left")));
    const reset = unlessLeft((answer) => {
      rows = new Map(answer.rows);
    });
    const apply = unlessLeft((data, { topic: key }) => rows.set(key, data.value));
    const list = load(gate, "*", application.fetch, { reset, apply, since, timeoutMs: 200, resyncSpreadMs: 10 });
    page = {
      list,
      leave() {
        list.close();
        isOpen = false;
      },
    };
  };
  for (let n = world.below(4); n; n--) application.commit(topic());
  for (let n = world.below(4); n; n--) application.publish();
  if (application.names && world.below(3) === 0) {
    // The page came with its state.
    const answer = application.read();
    rows = new Map(answer.rows);
    enter(answer.position);
  } else enter();

  const actions = {
    deliver: () => gateway.deliver(),
    turn: () => world.turn(),
    timer: () => world.timer(),
    commit: () => application.commit(topic()),
    publish: () => application.publish(),
    read() {
      const request = application.requests.find(({ answer }) => !answer);
      if (request) request.answer = application.read();
    },
    answer() {
      const ready = application.requests.filter(({ answer }) => answer);
      const request = ready[world.below(ready.length)];
      request?.resolve(request.answer);
      application.requests = application.requests.filter((each) => each !== request);
    },
    refuseFetch: () => application.requests.shift()?.reject(new Error("503")),
    hang: () => application.requests.shift(),
    cut: () => gateway.cut(),
    lose: () => gateway.lose(),
    trim: () => gateway.trim(),
    roll: () => gateway.roll(0),
    rollBack() {
      const without = 1 + world.below(4);
      const lost = gateway.log.slice(-without);
      gateway.roll(without);
      application.repeat(lost);
    },
    behind: () => gateway.behind(),
    moving: () => gateway.moving(),
    refuse: () => (gateway.next = "refuse"),
    past: () => gate.subscribe("*", { since: { offset: world.below(gateway.head + 1) } }, () => {}),
    replay: () => void gate.replay("*", { from: 1, to: gateway.head }).catch(() => {}),
    leave() {
      page.leave();
      rows = new Map();
      enter();
    },
  };
  const bag = Object.entries(ACTIONS).flatMap(([name, most]) => Array(world.below(most + 1)).fill(name));
  bag.push("deliver", "commit", "publish");
  for (let step = 0; step < STEPS && !faults.length; step++) {
    const name = bag[world.below(bag.length)];
    world.trail.push(name);
    actions[name]();
    await world.settle();
  }
  // No more faults, so the page must become right, in bounded time.
  gateway.next = "accept";
  gateway.relieve();
  const done = () => gate.state.connection === "up" && !gate.state.waiting && gate.state.offset === gateway.head && gate.state.epoch === gateway.epoch && page.list.status === "current";
  let calm = 0;
  for (let step = 0; calm < CALM_STEPS && !faults.length; step++) {
    if (step > SETTLE_STEPS) faults.push(new Error(`does not settle: ${page.list.status} ${JSON.stringify(gate.state)}`));
    if (gate.state.connection === "refused") gate.open();
    if (gate.state.connection === "up" && world.below(4) === 0) gateway.heartbeat();
    const had = application.requests.length > 0;
    if (had) actions[world.below(2) ? "read" : "answer"]();
    const moved = application.publish() || had || gateway.deliver() || world.turn();
    if (!moved) world.timer();
    calm = moved || !done() ? 0 : calm + 1;
    await world.settle();
  }
  const text = (state) => JSON.stringify([...state].sort());
  if (!faults.length && text(rows) !== text(application.rows)) faults.push(new Error(`shows ${text(rows)}, and the server has ${text(application.rows)}`));
  page.leave();
  gate.close();
  for (const { resolve } of application.requests) resolve({ rows: [] });
  await world.settle();
  world.end();
  return { faults, trail: world.trail };
}

describe("whatever happens, a page that loads and follows", () => {
  it(`shows in the end what the server has (${HISTORIES} histories)`, async () => {
    const first = Number(process.env.HEADGATE_SEED ?? 1);
    const last = process.env.HEADGATE_SEED ? first : HISTORIES;
    // The first history of a process waits longer for its transport, which is imported then. A seed would not be the same history alone.
    await history(0, load);
    for (let seed = first; seed <= last; seed++) {
      const { faults, trail } = await history(seed, load);
      assert.equal(faults.length, 0, `seed ${seed}: ${faults[0]?.message}\n${trail.join(" ")}`);
    }
  });

  it("is wrong in some of these histories where it fetches by hand", async () => {
    let seed = 1;
    while (!(await history(seed, loadByHand)).faults.length) assert.ok(++seed <= 100);
  });
});
