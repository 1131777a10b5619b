/** The cursor, and the replays that it admits. */
import assert from "node:assert/strict";
import { beforeEach, describe, it } from "node:test";
import { createCursor } from "../../src/session/cursor.js";
import { createReplays } from "../../src/session/replays.js";

describe("Cursor", () => {
  let replays;
  let cursor;

  beforeEach(() => {
    replays = createReplays();
    cursor = createCursor(undefined, replays);
  });

  const welcome = (epoch, offset, resumed = null) => cursor.welcome({ epoch, offset, resumed });
  const seen = (offset, more) => cursor.admit({ id: null, time: 0, offset, ...more })?.("p") ?? false;

  /** The replays not over yet, as the next connection asks for them. */
  const expected = () => {
    const asked = [];
    replays.rewind((pattern, sinces) => asked.push(...sinces.map((since) => [pattern, since])), () => false, cursor.position());
    return asked;
  };

  it("resumes from nothing until it has a position", () => {
    assert.equal(cursor.resume(), undefined);
    welcome("e", 0);
    assert.deepEqual([cursor.resume(), cursor.state()], [{ epoch: "e", offset: 0 }, "resuming"]);
  });

  it("continues from the position of an earlier page", () => {
    cursor = createCursor({ epoch: "e", offset: 7 }, replays);
    assert.deepEqual(cursor.resume(), { epoch: "e", offset: 7 });
    welcome("e", 9, true);
    assert.deepEqual([7, 8].map((offset) => seen(offset, replayed)), [false, true]);
  });

  it("is catching up from the welcome that resumes until a cursor or a live event", () => {
    const states = [];
    cursor = createCursor(undefined, replays);
    cursor.watch(() => states.push(cursor.state()));
    const resume = (head) => {
      cursor.resume();
      welcome("e", head, true);
    };
    welcome("e", 5);
    resume(90);
    seen(6, replayed);
    seen(91);
    resume(120);
    cursor.follow({ epoch: "e", offset: 120 });
    // The queue was full, so the gateway reads on from the log, on the same connection.
    seen(121, replayed);
    seen(122);
    // Nothing was missed.
    resume(122);
    const resumed = ["resuming", "catching_up", "live"];
    assert.deepEqual(states, ["live", ...resumed, ...resumed, "catching_up", "live", ...resumed]);
  });

  it("takes one welcome for each attempt, and no other", () => {
    assert.deepEqual([welcome("e", 5), welcome("e", 9)], [true, false]);
    assert.deepEqual(cursor.position(), { epoch: "e", offset: 5 });
    cursor.resume();
    assert.deepEqual([welcome("e", 9, true), welcome("f", 1, false)], [true, false]);
    assert.equal(cursor.position().epoch, "e");
  });

  it("never moves back by itself, in another epoch neither", () => {
    welcome("e", 5);
    cursor.follow({ epoch: "e", offset: 3 });
    cursor.skip(4);
    assert.deepEqual(cursor.position(), { epoch: "e", offset: 5 });
    cursor.follow({ epoch: "f", offset: 1 });
    assert.deepEqual(cursor.position(), { epoch: "f", offset: 5 });
  });

  it("moves back to where the log has lost its end, from which everything is new", () => {
    welcome("e", 5);
    for (const offset of [6, 8]) seen(offset);
    cursor.rollBack(6, "f");
    assert.deepEqual([cursor.position(), cursor.state()], [{ epoch: "f", offset: 6 }, "live"]);
    assert.deepEqual([6, 7, 8].map((offset) => seen(offset)), [false, true, true]);
  });

  it("does not move forward to where the log has lost its end: what lies between may still come", () => {
    welcome("e", 5);
    cursor.rollBack(9, "f");
    assert.deepEqual(cursor.position(), { epoch: "f", offset: 5 });
    assert.deepEqual([5, 7].map((offset) => seen(offset)), [false, true]);
  });

  it("admits an event above it, once", () => {
    welcome("e", 5);
    assert.deepEqual([5, 6, 6, 8, 7].map((offset) => seen(offset)), [false, true, false, true, false]);
    assert.equal(seen(4, replayed), false);
  });

  /** Whether the handlers of these patterns see an event that matches all of them. */
  const who = (offset, more) => {
    const admits = cursor.admit({ id: null, time: 0, offset, ...more });
    return ["p", "q"].filter((pattern) => admits?.(pattern)).join("");
  };
  const replayed = { replayed: true };

  it("admits the past to the pattern that asked for it, once, until a new event ends it", () => {
    welcome("e", 50);
    replays.expect("p", { last: 5 });
    assert.deepEqual([10, 10, 12, 11, 50].map((offset) => who(offset, replayed)), ["p", "", "p", "", "p"]);
    assert.equal(who(51, replayed), "pq");
    assert.deepEqual(expected(), []);
    assert.equal(who(49, replayed), "");
    assert.equal(cursor.position().offset, 51);
  });

  it("does not end a past that a broken connection has interrupted, even if new events come before it continues", () => {
    welcome("e", 50);
    replays.expect("p", { last: 5 });
    assert.equal(who(40, replayed), "p");
    cursor.resume();
    welcome("e", 60, true);
    assert.deepEqual(expected(), [["p", { epoch: "e", offset: 40 }]]);
    assert.deepEqual([51, 40, 41, 51, 60].map((offset) => who(offset, replayed)), ["pq", "", "p", "", "pq"]);
    assert.deepEqual(expected(), []);
  });

  it("admits the past that was asked for before the first welcome", () => {
    replays.expect("p", { last: 1 });
    welcome("e", 50);
    assert.deepEqual([50, 51].map((offset) => who(offset, replayed)), ["p", "pq"]);
  });

  it("is not misled by events that were under way before the past began", () => {
    welcome("e", 50);
    replays.expect("p", { offset: 40 });
    assert.equal(who(51), "pq");
    assert.deepEqual([41, 51, 50].map((offset) => who(offset, replayed)), ["p", "", "p"]);
    assert.deepEqual(expected(), [["p", { epoch: "e", offset: 50 }]]);
  });

  it("takes a past that brings nothing for over with the first position above the acknowledgement", () => {
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

  it("takes no part of another pattern's past for the end of one that has not begun", () => {
    welcome("e", 50);
    for (const pattern of ["p", "q"]) replays.expect(pattern, { offset: 40 });
    // Those above 45 were sent for one of them, before the gateway had the other.
    assert.deepEqual([46, 48, 41, 46, 47, 48].map((offset) => who(offset, replayed)), ["pq", "pq", "pq", "", "pq", ""]);
    assert.deepEqual(expected(), [["p", { epoch: "e", offset: 40 }], ["q", { epoch: "e", offset: 40 }]]);
  });

  it("admits nothing of another pattern's past that lies before its own, once the gateway has named its start", () => {
    welcome("e", 50);
    replays.expect("p", { last: 5 });
    replays.expect("p", { time: 9 });
    replays.expect("q", { offset: 10 });
    replays.acknowledge("p", 50, undefined, false, 45, false);
    assert.equal(who(44, replayed), "pq");
    replays.acknowledge("p", 50, undefined, false, 40);
    assert.deepEqual([40, 41, 46].map((offset) => who(offset, replayed)), ["q", "pq", "pq"]);
  });

  it("asks for the same past again where the last so many events are others by then, and for all of one that is not acknowledged", () => {
    welcome("e", 50);
    replays.expect("p", { last: 5 });
    replays.expect("q", { last: 9 });
    replays.acknowledge("p", 50, undefined, false, 45);
    who(48, replayed);
    assert.deepEqual(expected(), [["p", { epoch: "e", offset: 45 }], ["q", { last: 9 }]]);
  });

  it("takes a past that begins above the position for one from there, on another connection: its epoch may have ended before", () => {
    welcome("e", 0);
    replays.expect("p", { offset: 7 });
    assert.deepEqual(expected(), [["p", { epoch: "e", offset: 7 }]]);
    cursor.follow({ epoch: "f", offset: 9 });
    assert.equal(who(3, replayed), "p");
  });

  it("asks for a past from where the log has lost its end, if it was to begin above that", () => {
    welcome("e", 9);
    replays.expect("p", { offset: 7 });
    cursor.rollBack(5, "f");
    assert.deepEqual(expected(), [["p", { epoch: "f", offset: 5 }]]);
  });

  it("continues after what came of each past that the welcome has acknowledged", () => {
    for (const pattern of ["p", "q"]) replays.expect(pattern, { offset: 40 });
    welcome("e", 50);
    for (const pattern of ["p", "q"]) replays.acknowledge(pattern, 50, undefined, true);
    who(45, replayed);
    assert.deepEqual(expected(), [["p", { epoch: "e", offset: 45 }], ["q", { epoch: "e", offset: 45 }]]);
  });

  it("lets a pattern that misses everything since a lost log see the next log from its start", () => {
    welcome("e", 9);
    cursor.restart();
    replays.miss("p", cursor.position(), cursor.seen());
    // By another pattern's past.
    cursor.skip(4, "f");
    assert.deepEqual([3, 4].map((offset) => seen(offset, replayed)), [true, true]);
  });

  it("reports a past as lost where so much has come that it is not known which of it is missing", () => {
    const lost = [];
    replays = createReplays((pattern) => lost.push(pattern));
    cursor = createCursor(undefined, replays);
    welcome("e", 20_000);
    for (const pattern of ["p", "q"]) replays.expect(pattern, { offset: 0 });
    for (let offset = 1; offset <= 10_001; offset++) who(offset, replayed);
    assert.deepEqual([lost, who(2, replayed), lost], [[], "", []]);
    assert.deepEqual([who(1, replayed), lost], ["", ["p", "q"]]);
  });

  it("keeps the old position until the gap of another log was dispatched, and then takes anything first", () => {
    welcome("e", 50);
    cursor.resume();
    welcome("f", 9, false);
    assert.deepEqual([cursor.state(), cursor.position()], ["announced", { epoch: "e", offset: 50 }]);
    cursor.restart();
    assert.deepEqual(cursor.position(), { epoch: "f", offset: 9 });
    assert.deepEqual([4, 4, 5].map((offset) => seen(offset)), [true, false, true]);
    assert.deepEqual(cursor.position(), { epoch: "f", offset: 5 });
  });

  it("forgets an announced log whose gap was not dispatched when the next attempt begins", () => {
    welcome("e", 50);
    cursor.resume();
    welcome("f", 9, false);
    assert.deepEqual(cursor.resume(), { epoch: "e", offset: 50 });
  });

  it("keeps where to resume when the log is lost, and believes the next position, even a lower one", () => {
    welcome("e", 50);
    cursor.restart();
    assert.deepEqual(cursor.position(), { epoch: "e", offset: 50 });
    cursor.follow({ epoch: "e", offset: 3 });
    assert.deepEqual(cursor.position(), { epoch: "e", offset: 3 });
    assert.deepEqual([3, 4].map((offset) => seen(offset)), [false, true]);
  });
});
