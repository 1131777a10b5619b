/** The words of the demo for a gap. */
import assert from "node:assert/strict";
import { it } from "node:test";
import { gapMark, gapWords } from "../../demo/src/gap-words.js";

it("says which events were missed, and why", () => {
  assert.equal(gapWords({ from: 4, to: 6, count: 3, reason: "trimmed" }), "3 missed (4 to 6): trimmed");
  assert.equal(gapWords({ from: null, to: null, count: null, reason: "upstream" }), "? missed (? to ?): upstream");
});

it("does not say missed of events that were seen and that Redis has lost", () => {
  assert.equal(gapWords({ from: 4, to: 6, count: 3, reason: "rolled_back" }), "3 taken back (4 to 6): Redis has lost them");
});

it("says in two words what the chart has room for", () => {
  assert.equal(gapMark({ count: 3, reason: "rolled_back" }), "3 taken back");
  assert.equal(gapMark({ count: null, reason: "trimmed" }), "? missed");
});
