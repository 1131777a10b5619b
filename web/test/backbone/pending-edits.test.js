/** Edits on their way to the server. */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { PendingEdits } from "../../src/backbone/pending-edits.js";

describe("PendingEdits", () => {
  it("lets through attributes that are not being saved", () => {
    const edits = new PendingEdits();
    assert.deepEqual(edits.sift({ a: 1 }, "event"), { a: 1 });
    const end = edits.begin({ a: 1 }, { a: 0 });
    assert.deepEqual(edits.sift({ a: 5, b: 6 }, "event"), { b: 6 });
    assert.deepEqual(end(true), { a: 1 });
    assert.deepEqual(end(true), {});
    assert.deepEqual(edits.sift({ a: 7 }, "event"), { a: 7 });
  });
});
