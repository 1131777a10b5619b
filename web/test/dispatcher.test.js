/** The dispatcher compared with Backbone.Events: the same calls lead to the same callbacks. */
import assert from "node:assert/strict";
import { describe, it, mock } from "node:test";
import Backbone from "backbone";
import { Dispatcher } from "#headgate";
import { belowFrom } from "./chance.js";

/** Run one script on both and compare the calls: [label, this, arguments]. */
function sideBySide(script) {
  const logs = [() => ({ ...Backbone.Events }), () => new Dispatcher()].map((make) => {
    const log = [];
    const bus = make();
    const names = new Map([[bus, "bus"]]);
    const named = (value) => names.get(value) ?? value;
    const fn = (label, also) =>
      function (...args) {
        log.push([label, named(this), args.map(named)]);
        also?.();
      };
    const context = (label) => {
      const made = {};
      names.set(made, label);
      return made;
    };
    const other = (label) => {
      const made = make();
      names.set(made, label);
      return made;
    };
    script({ bus, fn, context, other, log });
    return log;
  });
  assert.deepEqual(logs[1], logs[0]);
  return logs[1];
}

/** What both do alike. @type {Record<string, (both: any) => void>} */
const ALIKE = {
  "binds and triggers several names and maps"({ bus, fn, context }) {
    bus.on("a b  c", fn("abc"));
    bus.on({ a: fn("map a"), "b c": fn("map bc") }, context("map context"));
    bus.on({ a: fn("map, third") }, undefined, context("third"));
    bus.trigger("a b", 1).trigger("c");
    bus.trigger({ a: 1, b: 2 }, 3);
  },
  "calls a nested once a single time"({ bus, fn }) {
    bus.once("a", fn("a", () => bus.trigger("a"))).trigger("a");
  },
  "is not disturbed by binding and unbinding inside a callback"({ bus, fn }) {
    const late = fn("late");
    const second = fn("second");
    bus.on("a", fn("adds", () => bus.on("a", late)));
    bus.on("a", fn("removes", () => bus.off("a", second)));
    bus.on("a", second);
    bus.on("all", fn("all", () => bus.off("all")));
    bus.trigger("a").trigger("a");
  },
  "ignores missing callbacks"({ bus }) {
    bus.on("a").on("a", null).listenTo(null, "a").listenTo(undefined).stopListening().off("nothing").trigger("a");
  },
  "leaves alone what `on` has bound to an object that does not listen, or listens no more"({ bus, fn, other }) {
    const one = other("one");
    const f = fn("f");
    one.on("a", f, bus);
    bus.stopListening(one);
    one.trigger("a", 1);
    bus.listenTo(one, "b", f);
    one.off("b");
    bus.stopListening(one).stopListening();
    one.trigger("a", 2);
    bus.listenTo(one, "b", f).stopListening();
    one.trigger("a", 3);
  },
  "listens to itself"({ bus, fn }) {
    bus.listenTo(bus, "a", fn("a")).trigger("a").stopListening().trigger("a");
    bus.listenTo(bus, "a", fn("a")).off().trigger("a");
  },
  "answers to the old names"({ bus, fn }) {
    const f = fn("f");
    bus.bind("a", f).trigger("a").unbind("a", f).trigger("a");
  },
};

describe("Dispatcher as Backbone.Events", () => {
  for (const [claim, script] of Object.entries(ALIKE)) it(claim, () => void sideBySide(script));

  it("returns itself from every call", () => {
    const bus = new Dispatcher();
    const f = () => {};
    for (const made of [bus.on("a", f), bus.once("a", f), bus.off("a"), bus.trigger("a"), bus.listenTo(bus, "a", f), bus.listenToOnce(bus, "a", f), bus.stopListening()]) {
      assert.equal(made, bus);
    }
  });

  it("agrees over random sequences of calls", () => {
    const seed = 20_261_121;
    for (let round = 0; round < 300; round++) {
      const log = sideBySide(({ bus, fn, context, other }) => {
        const below = belowFrom(seed + round);
        const pick = (choices) => choices[below(choices.length)];
        const peer = other("peer");
        const callbacks = ["f", "g", "h"].map((label) => fn(label));
        const contexts = [undefined, context("c"), context("d"), bus, peer];
        const name = () => pick(["a", "b", "c", "a b", "b  c", "all", "all a"]);
        const map = () => ({ [pick(["a", "b", "a c"])]: pick(callbacks) });
        const steps = [
          () => bus.on(name(), pick(callbacks), pick(contexts)),
          () => bus.on(map(), pick(contexts)),
          () => bus.once(name(), pick(callbacks), pick(contexts)),
          () => bus.off(pick([name(), null]), pick([...callbacks, null]), pick(contexts)),
          () => bus.off(map(), pick(contexts)),
          () => bus.listenTo(peer, name(), pick(callbacks)),
          () => bus.listenToOnce(peer, name(), pick(callbacks)),
          () => peer.listenTo(bus, name(), pick(callbacks)),
          () => bus.stopListening(pick([peer, null]), pick([name(), null]), pick([...callbacks, null])),
          () => peer.listenToOnce(bus, name(), pick(callbacks)),
          () => peer.on(name(), pick(callbacks), pick(contexts)),
          () => peer.once(name(), pick(callbacks), pick(contexts)),
          () => peer.off(pick([name(), null]), pick([...callbacks, null]), pick(contexts)),
          () => peer.stopListening(pick([bus, null])),
          () => bus.trigger(name(), pick([1, "x", null])),
          () => bus.trigger(name()),
          () => peer.trigger(name(), 5, 6),
        ];
        for (let step = 0; step < 40; step++) pick(steps)();
      });
      assert.ok(Array.isArray(log), `seed ${seed + round}`);
    }
  });
});

describe("Dispatcher where it differs on purpose", () => {
  it("continues after a callback that throws, and reports it", () => {
    const reported = mock.method(console, "error", () => {});
    const called = [];
    new Dispatcher()
      .on("a", () => {
        throw new Error("mine");
      })
      .on("a", () => called.push("second"))
      .trigger("a");
    assert.deepEqual(called, ["second"]);
    assert.equal(reported.mock.calls[0].arguments[0].message, "mine");
    mock.restoreAll();
  });

  it("does not read off(' a') as off()", () => {
    const called = [];
    new Dispatcher().on("b", () => called.push("b")).off(" a").trigger("b");
    assert.deepEqual(called, ["b"]);
  });
});

describe("Dispatcher with real Backbone objects", () => {
  it("forgets an object when the last handler there is removed, and not before", () => {
    const bus = new Dispatcher();
    const other = new Dispatcher();
    const off = mock.method(other, "off");
    const keeps = () => {
      const before = off.mock.callCount();
      bus.stopListening();
      return off.mock.callCount() > before;
    };
    const f = () => {};
    for (const end of [() => bus.stopListening(other, "a b", f), () => bus.stopListening(null, null, f), () => bus.stopListening(other, { a: f, b: f }), () => bus.stopListening(other)]) {
      bus.listenTo(other, "a b", f);
      end();
      assert.equal(keeps(), false, String(end));
    }
    bus.listenToOnce(other, "a b", f);
    other.trigger("a").trigger("b");
    assert.equal(keeps(), false);
    bus.listenTo(other, "a b", f).stopListening(other, "a");
    assert.equal(keeps(), true);
    bus.listenToOnce(other, "a b", f);
    other.trigger("a");
    assert.equal(keeps(), true);
  });

  it("forgets a dispatcher that has removed its handlers, and not before", () => {
    const f = () => {};
    for (const listen of ["listenTo", "listenToOnce"]) {
      for (const [names, rest, ...off] of [["a", false], ["all", false, "all"], ["a b", false, "a b"], ["a b", true, "a"], ["a b", false, null, f], ["a b", false, { a: f, b: f }], ["a", true, "a", () => {}]]) {
        const [bus, other] = [new Dispatcher(), new Dispatcher()];
        bus[listen](other, names, f);
        other.off(...off);
        const remove = mock.method(other, "off");
        bus.stopListening();
        assert.equal(remove.mock.callCount() > 0, rest, `${listen} ${names}, off ${off}`);
      }
    }
  });

  it("keeps nothing of an object that refuses to be listened to", () => {
    const bus = new Dispatcher();
    const other = { on: mock.fn(() => assert.fail("refused")), off: mock.fn() };
    assert.throws(() => bus.listenTo(other, "a", () => {}), /refused/);
    bus.stopListening();
    assert.equal(other.off.mock.callCount(), 0);
  });

  it("is listened to by a model, which stops with stopListening", () => {
    const bus = new Dispatcher();
    const model = new Backbone.Model();
    const called = [];
    const callback = function (value) {
      called.push([this === model, value]);
    };
    model.listenTo(bus, "a b", callback).listenToOnce(bus, "c", callback);
    bus.trigger("a", 1).trigger("b", 2).trigger("c", 3).trigger("c", 4);
    model.stopListening(bus, "a");
    bus.trigger("a", 5).trigger("b", 6);
    model.stopListening();
    bus.trigger("b", 7);
    assert.deepEqual(called, [[true, 1], [true, 2], [true, 3], [true, 6]]);
  });

  it("listens to a model, and stops", () => {
    const bus = new Dispatcher();
    const model = new Backbone.Model();
    const called = [];
    bus.listenTo(model, "change:x", (_model, value) => called.push(value));
    bus.listenToOnce(model, "change:y", (_model, value) => called.push(value));
    model.set({ x: 1 }).set({ y: 2 }).set({ y: 3 });
    bus.stopListening(model);
    model.set({ x: 4 });
    assert.deepEqual(called, [1, 2]);
  });
});
