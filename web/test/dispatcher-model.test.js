/** The dispatcher against a naive one: a list of handlers, every one of which is checked for every call. */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Dispatcher } from "#headgate";
import { belowFrom } from "./chance.js";

const HISTORIES = Number(process.env.HEADGATE_HISTORIES ?? 150);
const NAMES = [
  "a", "a.b", "a.c", "a.*", "a.#", "#", "*", "*.b", "#.b", "a.#.b", "#.#", "#.a.#", "*.*", "__proto__", "constructor.b", "__proto__.*", "hasOwnProperty",
  "a:b", "state:change", "all", "a.b a.#", "*  #",
];
const TOPICS = ["a", "a.b", "a.c", "b", "a.a.b", "a.x.b", "__proto__", "__proto__.b", "constructor.b", "hasOwnProperty", "all", "*", "a:b", "b.a.b.a"];

/** A pattern as a regular expression, every word with a dot after it. @param {string} pattern @param {string} topic */
const matches = (pattern, topic) =>
  new RegExp(`^${pattern.split(".").map((word) => (word === "*" ? "[^.]+[.]" : word === "#" ? "([^.]+[.])*" : `${word}[.]`)).join("")}$`).test(`${topic}.`);

/** The rules written down once more, as plainly as they can be. */
class Naive {
  #handlers = [];
  failures = [];

  #entries(name) {
    return name.split(/\s+/).map((each) => (each === "all" ? ":all" : each));
  }

  on(name, callback, context) {
    for (const key of this.#entries(name)) this.#handlers = [...this.#handlers, { key, callback, given: callback._callback ?? callback, context }];
    return this;
  }

  off(name, callback, context) {
    for (const key of name ? this.#entries(name) : [null]) {
      this.#handlers = this.#handlers.filter(
        (each) => (key && key !== each.key) || (callback && callback !== each.callback && callback !== each.given) || (context && context !== each.context),
      );
    }
    return this;
  }

  once(name, callback, context) {
    for (const key of name.split(/\s+/)) {
      let called = false;
      const bus = this;
      const once = function (...args) {
        if (called) return;
        called = true;
        bus.off(key, once);
        callback.apply(this, args);
      };
      once._callback = callback;
      this.on(key, once, context);
    }
    return this;
  }

  #run(handlers, args, name) {
    for (const { callback, context } of handlers) {
      try {
        callback.apply(context ?? this, args);
      } catch {
        this.failures.push(name);
      }
    }
  }

  trigger(names, ...args) {
    for (const name of names.split(/\s+/)) {
      const key = name === "all" ? ":all" : name;
      const handlers = this.#handlers;
      this.#run(handlers.filter((each) => each.key === key), args, name);
      this.#run(handlers.filter((each) => each.key === ":all"), [name, ...args], name);
    }
    return this;
  }

  dispatch(topic, data, describe, admits) {
    const handlers = this.#handlers;
    const admitted = new Map();
    const chosen = [];
    for (const each of handlers) {
      if (each.key.includes(":") || !matches(each.key, topic)) continue;
      if (!admitted.has(each.key)) admitted.set(each.key, admits(each.key));
      if (admitted.get(each.key) && !chosen.some(({ given, context }) => given === each.given && context === each.context)) chosen.push(each);
    }
    for (const each of chosen) this.#run([each], [data, describe(each.key)], topic);
    if (chosen.length) this.#run(handlers.filter((each) => each.key === ":all"), [topic, data, describe(chosen[0].key)], topic);
    return chosen.length;
  }
}

class Real extends Dispatcher {
  failures = [];
  left = 0;

  _handlerFailed(_error, name) {
    this.failures.push(name);
  }

  _handlerComes() {
    this.left++;
  }

  _handlerLeft() {
    this.left--;
  }
}

/** Run one random history on a dispatcher and return its handlers' events. */
function history(bus, seed) {
  const below = belowFrom(seed);
  const pick = (choices) => choices[below(choices.length)];
  const log = [];
  let depth = 0;
  const contexts = [undefined, { label: "c" }, { label: "d" }];
  const callbacks = Array.from("fghijk", (label, nth) =>
    function (...args) {
      log.push([label, this === bus ? "bus" : this?.label, ...args.map((each) => (typeof each === "object" ? each.pattern : each))]);
      // Three of them change the handlers, or dispatch, while a dispatch is under way; one throws.
      if (nth === 3 && depth < 2) step();
      if (nth === 4) bus.off(pick([null, ...NAMES]), pick([null, ...callbacks]), pick(contexts));
      if (nth === 5) throw new Error("mine");
    },
  );
  const steps = [
    () => bus.on(pick(NAMES), pick(callbacks), pick(contexts)),
    () => bus.on(pick(NAMES), pick(callbacks), pick(contexts)),
    () => bus.on(pick(NAMES), pick(callbacks), pick(contexts)),
    () => bus.once(pick(NAMES), pick(callbacks), pick(contexts)),
    () => bus.off(pick(NAMES), pick([null, ...callbacks]), pick(contexts)),
    () => bus.off(null, pick([...callbacks]), pick(contexts)),
    () => bus.off(null, null, pick(contexts.slice(1))),
    () => bus.trigger(pick(NAMES), below(9)),
    () => dispatch(pick(TOPICS), below(9), below(5)),
    () => dispatch(pick(TOPICS), below(9), 9),
  ];
  const dispatch = (topic, data, refused) => log.push(bus.dispatch(topic, data, (pattern) => ({ pattern }), (pattern) => pattern.length !== refused));
  function step() {
    depth++;
    pick(steps)();
    depth--;
  }
  for (let nth = 0; nth < 60; nth++) step();
  log.push(...bus.failures);
  return log;
}

describe("Dispatcher against a naive one", () => {
  it("calls the same handlers with the same arguments in the same order, over random histories", () => {
    let calls = 0;
    for (let seed = 0; seed < HISTORIES; seed++) {
      const expected = history(new Naive(), seed);
      const bus = new Real();
      assert.deepEqual(history(bus, seed), expected, `history ${seed}`);
      bus.off();
      assert.equal(bus.left, 0, `history ${seed}: every handler that came has left`);
      calls += expected.length;
    }
    assert.ok(calls > 10 * HISTORIES, "the histories call handlers");
  });

  it("finds the same patterns as matching each, whatever the words", () => {
    const words = ["a", "b", "__proto__", "*", "#"];
    const all = (depth) => (depth ? all(depth - 1).flatMap((rest) => [...words.map((word) => [...rest, word])]).concat(depth > 1 ? all(depth - 1) : []) : [[]]);
    const patterns = [...new Set(all(4).map((each) => each.join(".")))];
    const topics = patterns.filter((pattern) => !/[*#]/.test(pattern));
    assert.ok(patterns.length > 700 && topics.length > 100);
    const bus = new Dispatcher();
    const gone = new Set();
    const check = (topic) => {
      const found = [];
      bus.dispatch(topic, found, (pattern) => ({ pattern }));
      const expected = patterns.filter((pattern) => !gone.has(pattern) && matches(pattern, topic));
      assert.deepEqual(found, expected, topic);
    };
    for (const pattern of patterns) bus.on(pattern, (found, each) => found.push(each.pattern));
    topics.forEach(check);
    for (const [nth, pattern] of patterns.entries()) {
      if (nth % 3) continue;
      bus.off(pattern);
      gone.add(pattern);
    }
    topics.forEach(check);
  });
});
