/** Rules of replays that the random histories (no-silent-loss.test.js) do not reach. */
import assert from "node:assert/strict";
import { beforeEach, describe, it } from "node:test";
import { createCursor } from "../../src/session/cursor.js";
import { createReplays } from "../../src/session/replays.js";

const replayed = { replayed: true };

describe("a replay", () => {
  let replays;
  let cursor;
  const lost = [];

  beforeEach(() => {
    lost.length = 0;
    replays = createReplays((pattern) => lost.push(pattern));
    cursor = createCursor(undefined, replays);
  });

  const welcome = (epoch, offset) => cursor.welcome({ epoch, offset, resumed: null });

  /** The replays not over yet, as the next connection asks for them. */
  const expected = () => {
    const asked = [];
    replays.rewind((pattern, sinces) => asked.push(...sinces.map((since) => [pattern, since])), () => false, cursor.position());
    return asked;
  };

  /** Whether the handlers of these patterns see an event that matches all of them. */
  const who = (offset, more) => {
    const admits = cursor.admit({ id: null, time: 0, offset, ...more });
    return ["p", "q"].filter((pattern) => admits?.(pattern)).join("");
  };

  it("that brings nothing is over with the first position above the acknowledgement", () => {
    welcome("e", 0);
    for (const come of [(offset) => who(offset), (offset) => cursor.follow({ epoch: "e", offset })]) {
      replays.expect("p", { last: 1 });
      const { offset } = cursor.position();
      replays.acknowledge("p", offset + 1);
      come(offset + 1);
      assert.equal(expected().length, 1);
      replays.acknowledge("p", offset + 1);
      come(offset + 2);
      assert.deepEqual(expected(), []);
    }
    replays.expect("p", { offset: 0 });
    replays.forget("p");
    assert.equal(who(1, replayed), "");
  });

  it("is asked for from where the log has lost its end, if it was to begin above that", () => {
    welcome("e", 9);
    replays.expect("p", { offset: 7 });
    cursor.rollBack(5, "f");
    assert.deepEqual(expected(), [["p", { epoch: "f", offset: 5 }]]);
  });

  it("is reported as lost where so much has come that it is not known which of it is missing", () => {
    welcome("e", 20_000);
    for (const pattern of ["p", "q"]) replays.expect(pattern, { offset: 0 });
    for (let offset = 1; offset <= 10_001; offset++) who(offset, replayed);
    assert.deepEqual([lost, who(2, replayed), lost], [[], "", []]);
    assert.deepEqual([who(1, replayed), lost], ["", ["p", "q"]]);
  });
});
