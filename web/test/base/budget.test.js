/** The budget of requests. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it, mock } from "node:test";
import { createBudget } from "../../src/base/budget.js";

/** The client's monotonic clock. */
let clockMs = 0;

beforeEach(() => {
  clockMs = 0;
  mock.method(performance, "now", () => clockMs);
});

afterEach(() => mock.restoreAll());

describe("Budget", () => {
  /** Return a function that takes a request at a time. */
  function taker(limits) {
    const take = createBudget(limits);
    return (nowMs) => {
      clockMs = nowMs;
      return take();
    };
  }

  it("is without end where the gateway names no limits", () => {
    const take = taker({});
    assert.deepEqual([0, 0, 0].map(take), [0, 0, 0]);
  });

  it("lets half of the burst go at once, then half of the rate", () => {
    const take = taker({ inboundPerS: 10, inboundBurst: 8 });
    assert.deepEqual([1, 2, 3, 4].map(() => take(0)), [0, 0, 0, 0]);
    assert.deepEqual([0, 100, 200, 200].map(take), [200, 100, 0, 200]);
  });

  it("saves up no more than the burst", () => {
    const take = taker({ inboundPerS: 10, inboundBurst: 4 });
    assert.deepEqual([1, 2, 3].map(() => take(1_000_000)), [0, 0, 200]);
  });
});
