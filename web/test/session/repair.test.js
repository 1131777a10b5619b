/** The pace of repairs, and their ends, which the random histories (no-silent-loss.test.js) do not reach. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it, mock } from "node:test";
import { createRepair } from "../../src/session/repair.js";

describe("repairs", () => {
  /** Requests, each with the gap's last offset. @type {{ to: number, answer: (next: number | null) => Promise<void>, fail: (error: object) => Promise<void> }[]} */
  let requests;
  /** The last offsets of ended repairs. @type {number[]} */
  let ended;
  let busyMs;
  let repair;

  beforeEach(() => {
    mock.timers.enable({ apis: ["setTimeout"] });
    requests = [];
    ended = [];
    busyMs = 0;
    const fetch = ({ gap: { to } }) => new Promise((resolve, reject) => {
      const settled = (settle) => async (value) => {
        settle(value);
        await new Promise(setImmediate);
      };
      requests.push({ to, answer: settled(resolve), fail: settled(reject) });
    });
    repair = createRepair(fetch, () => busyMs, ({ gap }) => ended.push(gap.to));
  });
  afterEach(() => mock.timers.reset());

  const add = (to, from = 1) => repair.add({ from, to }, ["a"], []);
  const askedFor = () => requests.map(({ to }) => to);

  it("ask again after two seconds, as often as the connection breaks, else five times", async () => {
    add(5);
    mock.timers.tick(0);
    const failures = [...Array(7).fill({ code: "disconnected", retry: true }), ...Array(6).fill({ code: "timeout", retry: true })];
    for (const [nth, error] of failures.entries()) {
      assert.deepEqual([requests.length, ended], [nth + 1, []]);
      await requests[nth].fail(error);
      mock.timers.tick(1999);
      assert.equal(requests.length, nth + 1);
      mock.timers.tick(1);
    }
    assert.deepEqual([requests.length, ended], [failures.length, [5]]);
  });

  it("end with a refusal, and wait for their turn", async () => {
    add(5);
    mock.timers.tick(0);
    add(9);
    mock.timers.tick(0);
    assert.deepEqual(askedFor(), [5]);
    busyMs = 30;
    await requests[0].fail({ code: "forbidden", retry: false });
    assert.deepEqual(ended, [5]);
    mock.timers.tick(2000);
    assert.deepEqual(askedFor(), [5]);
    busyMs = 0;
    mock.timers.tick(30);
    assert.deepEqual(askedFor(), [5, 9]);
  });

  it("are given up above an offset, and the answer to one under way does not count", async () => {
    for (const to of [9, 5, 20, 7]) add(to);
    mock.timers.tick(0);
    repair.giveUp(8);
    assert.deepEqual(ended, [9, 20]);
    mock.timers.tick(0);
    await requests[0].answer(null);
    assert.deepEqual([askedFor(), ended], [[9, 5], [9, 20]]);
    repair.giveUp(5);
    mock.timers.tick(0);
    assert.deepEqual([askedFor(), ended], [[9, 5], [9, 20, 7]]);
    await requests[1].answer(null);
    assert.deepEqual(ended, [9, 20, 7, 5]);
  });

  it("are forgotten, and the answer to one under way does not count", async () => {
    add(5);
    add(6);
    mock.timers.tick(0);
    repair.clear();
    add(9);
    mock.timers.tick(0);
    await requests[0].answer(null);
    assert.deepEqual([askedFor(), ended], [[5, 9], []]);
    await requests[1].fail({ code: "disconnected", retry: true });
    repair.clear();
    mock.timers.tick(2000);
    assert.deepEqual([askedFor(), ended], [[5, 9], []]);
  });

  it("of at most 10,000 known offsets are made, and at most 16 at a time", () => {
    assert.equal(add(null, null), undefined);
    assert.equal(add(10_001), undefined);
    for (let nth = 0; nth < 16; nth++) assert.ok(add(10_000));
    assert.equal(add(5), undefined);
  });
});
