/** Reconnection delays. */
import assert from "node:assert/strict";
import { afterEach, describe, it, mock } from "node:test";
import { reconnectDelayMs } from "../../src/base/backoff.js";

afterEach(() => mock.restoreAll());

describe("reconnectDelayMs", () => {
  it("grows though the minimum is 0, so that nothing spins", () => {
    mock.method(Math, "random", () => 0.5);
    assert.deepEqual([0, 1, 2, 20, 2000].map((attempt) => reconnectDelayMs(attempt, 0, 20_000)), [100, 200, 400, 10_000, 10_000]);
  });

  it("is spread between the minimum and a ceiling that doubles up to the maximum", () => {
    let random = 0;
    mock.method(Math, "random", () => random);
    const spans = [0, 1, 2, 3, 4, 5, 6, 1000].map((attempt) =>
      [0, 1].map((each) => {
        random = each;
        return reconnectDelayMs(attempt, 500, 20_000);
      }),
    );
    assert.deepEqual(spans, [[500, 1000], [500, 2000], [500, 4000], [500, 8000], [500, 16_000], [500, 20_000], [500, 20_000], [500, 20_000]]);
  });
});
