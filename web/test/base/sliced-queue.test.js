/** The queue below the inbox. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it, mock } from "node:test";
import { createSlicedQueue } from "../../src/base/sliced-queue.js";
import { settle } from "../fake-gateway.js";

/** The client's monotonic clock. */
let clockMs = 0;

beforeEach(() => {
  clockMs = 0;
  mock.method(performance, "now", () => clockMs);
});

afterEach(() => mock.restoreAll());

describe("SlicedQueue", () => {
  const IDLE = { full: () => {}, drained: () => {}, empty: () => {} };
  let queue;

  afterEach(() => queue.close());

  it("dispatches at once while there is time, and in slices when there is not", async () => {
    clockMs = 0;
    const dispatched = [];
    queue = createSlicedQueue(
      100,
      (message) => {
        dispatched.push(message);
        clockMs += 5;
      },
      { ...IDLE, full: () => assert.fail("not full") },
    );
    for (let n = 0; n < 7; n++) queue.put(n);
    assert.deepEqual(dispatched, [0, 1, 2]);
    assert.equal(queue.depth(), 4);
    while (queue.depth()) await settle();
    assert.deepEqual(dispatched, [0, 1, 2, 3, 4, 5, 6]);
  });

  it("keeps order when a dispatch brings another message", () => {
    const dispatched = [];
    queue = createSlicedQueue(
      100,
      (message) => {
        dispatched.push(message);
        if (message === "a") queue.put("c");
      },
      IDLE,
    );
    queue.put("a");
    queue.put("b");
    assert.deepEqual(dispatched, ["a", "c", "b"]);
  });

  it("says once that it is full, discards nothing, and says when it is empty", async () => {
    const reported = [];
    queue = createSlicedQueue(
      2,
      (message) => {
        reported.push(message);
        clockMs += 1000;
      },
      { full: () => reported.push("full"), drained: () => reported.push("drained"), empty: () => reported.push("empty") },
    );
    for (const message of ["a", "b", "c", "d"]) queue.put(message);
    assert.deepEqual([reported, queue.depth()], [["a", "empty", "full"], 3]);
    while (queue.depth()) await settle();
    assert.deepEqual(reported.slice(3), ["b", "c", "d", "drained", "empty"]);
  });

  it("lets timers have their turn while a long line is dispatched", async () => {
    let late = 0;
    queue = createSlicedQueue(100_000, () => (clockMs += 5), IDLE);
    setTimeout(() => (late = queue.depth()), 1);
    for (let n = 0; n < 10_000; n++) queue.put(n);
    while (queue.depth()) await settle();
    assert.ok(late > 0, "the timer came when nothing waited any more");
  });

  it("dispatches nothing more once it is closed", () => {
    const dispatched = [];
    queue = createSlicedQueue(
      100,
      (message) => {
        dispatched.push(message);
        queue.put("b");
        queue.close();
      },
      IDLE,
    );
    queue.put("a");
    assert.deepEqual([dispatched, queue.depth()], [["a"], 0]);
  });
});
