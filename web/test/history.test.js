/** The past as a value: its parts against the log of a gateway, refusals, options. */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { history } from "#headgate/history";
import { begin } from "./begin.js";
import { settle } from "./fake-gateway.js";

/** @type {any} */
let gate;

async function welcomed(welcome = {}) {
  const made = begin();
  gate = made.gate;
  await made.gateway.welcome(welcome);
  return made.gateway;
}

/** Answer each request as the gateway does, out of a log of so many events, of which every third matches; `pages` of so many positions. */
function serve(gateway, count, positions) {
  const asked = [];
  const mine = gate;
  void (async () => {
    while (mine.status !== "closed") {
      await settle();
      if (!gateway.requests.length) continue;
      const { body, acknowledge } = gateway.requests.shift();
      asked.push(body);
      const from = body.before?.offset ?? count + 1;
      const events = [];
      let offset = from - 1;
      for (; offset >= Math.max(1, from - positions) && events.length < body.limit; offset--) {
        if (offset % 3 === 0) events.push(["chat.7", offset, { id: `i${offset}`, time: offset, offset, replayed: true, by: "ana" }]);
      }
      acknowledge(null, { ok: true, events, before: offset >= 1 ? { epoch: "e1", offset: offset + 1 } : null });
    }
  })();
  return asked;
}

describe("history", () => {
  for (const [limit, positions] of [[1, 100], [7, 5], [10, 100], [150, 1000], [1000, 50]]) {
    it(`has each event once, newest first, in parts of ${limit}`, async () => {
      const gateway = await welcomed();
      const asked = serve(gateway, 400, positions);
      const had = [];
      /** @type {any} */
      let before = null;
      do {
        const part = await history(gate, "chat.*", { limit, before });
        assert.ok(part.events.length === limit || part.before === null);
        had.push(...part.events.map(({ data }) => data));
        before = part.before;
      } while (before);
      assert.deepEqual(had, Array.from({ length: 133 }, (_, nth) => 399 - 3 * nth));
      assert.ok(asked.every((body) => body.limit >= 1 && body.limit <= 100 && body.pattern === "chat.*"));
    });
  }

  it("calls no handler, and says of each event what a handler would get", async () => {
    const gateway = await welcomed();
    serve(gateway, 3, 100);
    gate.on("chat.*", () => assert.fail("a handler was called"));
    const { events } = await history(gate, "chat.*");
    assert.deepEqual(events, [{ id: "i3", time: 3, offset: 3, replayed: true, by: "ana", topic: "chat.7", data: 3, pattern: "chat.*" }]);
  });

  it("has the user's own topics by the name that the page uses", async () => {
    const gateway = await welcomed({ user: "ana", own: "users.ana." });
    const answered = history(gate, "users.me.mail.#");
    await gateway.until(() => gateway.requests.length, "a request");
    const { body, acknowledge } = gateway.requests.shift();
    acknowledge(null, { ok: true, events: [["users.ana.mail.new", 1, { id: "a", time: 1, offset: 1, replayed: true }]], before: null });
    assert.equal(body.pattern, "users.ana.mail.#");
    const { events } = await answered;
    assert.deepEqual([events[0].topic, events[0].pattern], ["users.me.mail.new", "users.me.mail.#"]);
  });

  it("begins at the end of the log without a position, as in the state of a gate that was never up", async () => {
    const asked = serve(await welcomed(), 3, 100);
    for (const before of [undefined, null, { epoch: null, offset: null }]) await history(gate, "chat.*", { before });
    assert.deepEqual(asked.map(({ before }) => before), [undefined, undefined, undefined]);
  });

  it("is rejected with the gateway's refusal, and with what is wrong with its arguments", async () => {
    const gateway = await welcomed();
    const answered = assert.rejects(history(gate, "chat.*"), { code: "forbidden" });
    await gateway.answer("history", { ok: false, error: { code: "forbidden", message: "no", retry: false } });
    await answered;
    await assert.rejects(history(gate, "chat..7"), { code: "invalid_pattern" });
    for (const options of [{ limit: 0 }, { limit: 1001 }, { limit: 1.5 }, { before: 7 }, { before: {} }, { before: { epoch: "e1", offset: "7" } }]) await assert.rejects(history(gate, "chat.7", /** @type {any} */ (options)), TypeError);
  });
});
