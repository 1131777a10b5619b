/** The tables of states: their shape, and the guide's words on them. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { describe, it } from "node:test";
// Private modules, which dist has inside its files and does not export, so these tests run on the sources.
import { Machine } from "../src/base/machine.js";
import { CONNECTION, coarseOf, statusOf } from "../src/connection/connection-state.js";
import { STREAM } from "../src/events.js";
import { LOAD } from "../src/load.js";
import { CURSOR } from "../src/session/cursor.js";
import { SUBSCRIPTION } from "../src/subscriptions/subscription.js";
import { WAY_BACK } from "../src/transport/way-back.js";

/** Every table of states, by its first state. */
const TABLES = {
  connection: [CONNECTION, "idle"],
  subscription: [SUBSCRIPTION, "idle"],
  cursor: [CURSOR, "none"],
  load: [LOAD, "requested"],
  loop: [STREAM, "new"],
  "way back from HTTP": [WAY_BACK, "blocked"],
};

/** Return the states that have no such step. */
const lacking = (table, step) => Object.keys(table).filter((state) => !(step in table[state]));

for (const [name, [table, first]] of Object.entries(TABLES)) {
  describe(`the states of a ${name}`, () => {
    /** The shortest way to each state. */
    const ways = new Map([[first, []]]);
    for (const [state, way] of ways) {
      for (const [step, next] of Object.entries(table[state])) if (!ways.has(next)) ways.set(next, [...way, step]);
    }
    const steps = new Set(Object.values(table).flatMap(Object.keys));

    it("can all be reached", () => assert.deepEqual([...ways.keys()].sort(), Object.keys(table).sort()));

    for (const [state, possible] of Object.entries(table)) {
      it(`lead from "${state}" to where the table says, and a step that it does not name is refused`, () => {
        for (const step of steps) {
          const machine = new Machine(table, first);
          for (const before of ways.get(state)) machine.take(before);
          assert.ok(machine.is(state));
          assert.equal(machine.can(step), step in possible);
          if (step in possible) assert.deepEqual([machine.take(step), machine.state], [possible[step] !== state, possible[step]]);
          else assert.throws(() => machine.take(step), new RegExp(`no step "${step}" from "${state}"`));
        }
      });
    }
  });
}

/** The tables of the guide that begin with a word: word → the words that follow it. */
const guide = await readFile(new URL("../../docs/guide.md", import.meta.url), "utf8");
const tableOf = (word) => {
  const rows = guide.slice(guide.indexOf(`| ${word} | meaning | next |`)).split("\n\n")[0].split("\n").slice(2);
  return Object.fromEntries(rows.map((row) => row.split("|").slice(1, -1)).map(([each, , next]) => [each.match(/\w+/)[0], (next.match(/\w+/g) ?? []).sort()]));
};
/** Which words follow each in a table of states, where several states may have one word. */
const follows = (table, wordOf) => {
  const found = {};
  for (const [state, steps] of Object.entries(table)) {
    const next = found[wordOf(state)] ?? new Set();
    found[wordOf(state)] = next;
    for (const each of Object.values(steps)) if (wordOf(each) !== wordOf(state)) next.add(wordOf(each));
  }
  return Object.fromEntries(Object.entries(found).map(([word, next]) => [word, [...next].sort()]));
};

describe("the guide", () => {
  it("names each status of a connection and those that follow it, as the table of states has them", () => {
    assert.deepEqual(tableOf("`gate.status`"), follows(CONNECTION, statusOf));
  });

  it("names each status of a subscription and those that follow it, as the table of states has them", () => {
    assert.deepEqual(tableOf("`subscription.status`"), follows(SUBSCRIPTION, (state) => state));
  });
});

describe("a machine", () => {
  it("calls after each step with the state before it and with what the step brought, and not for a step that it does not offer", () => {
    const taken = [];
    const machine = new Machine({ off: { press: "on" }, on: {} }, "off", (...call) => taken.push([machine.state, ...call]));
    assert.deepEqual([machine.offer("press", "a finger"), machine.offer("press")], [true, false]);
    assert.deepEqual(taken, [["on", "off", "press", "a finger"]]);
  });
});

describe("a connection", () => {
  it("can be closed from each state, and lost from each that has a connection or an attempt", () => {
    assert.deepEqual(lacking(CONNECTION, "close"), ["closed"]);
    assert.deepEqual(lacking(CONNECTION, "lose"), ["idle", "dispatching", "waiting", "refused", "paused", "closed"]);
    // A coarser word follows from the status alone.
    assert.deepEqual(Object.keys(CONNECTION).filter((phase) => coarseOf(phase) === "up"), ["live", "catching_up", "moving"]);
  });
});

describe("a subscription", () => {
  it("takes the end of a connection in each state, and is never forgotten while the gateway may have it", () => {
    assert.deepEqual(lacking(SUBSCRIPTION, "disconnect"), []);
    assert.deepEqual(lacking(SUBSCRIPTION, "release"), ["idle", "requested", "active", "changed", "releasing"]);
  });
});
