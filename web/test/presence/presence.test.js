/** Presence in a page: the set in parts, differences by version, reconnections, refusals. */
import assert from "node:assert/strict";
import { afterEach, describe, it, mock } from "node:test";
import { presence } from "#headgate/presence";
import { begin } from "../begin.js";
import { settle } from "../fake-gateway.js";

afterEach(() => mock.timers.reset());

async function enter(options = {}) {
  const { gateway, gate } = begin();
  const reports = [];
  const room = presence(gate, "rooms.7", options);
  for (const name of ["join", "leave", "change"]) room.on(`member:${name}`, ({ user }) => reports.push(`${user} ${name}`));
  await gateway.letIn();
  return { gateway, gate, room, reports };
}

const wire = (user, connections = 1, meta = null) => [user, connections, 1000, meta === null ? null : JSON.stringify(meta)];
const part = (members, version = 0, more = {}) => ({ ok: true, topic: "rooms.7", copy: "c1", version, count: members.length, members, next: null, ...more });
const names = (room) => room.members.map(({ user }) => user);

/** Answer the request that waits. */
async function answer(gateway, reply) {
  await gateway.until(() => gateway.requests.length, "a request");
  const { body, acknowledge } = gateway.requests.shift();
  acknowledge(null, reply);
  await settle();
  return body;
}

async function notify(gateway, base, version, members, left = [], more = {}) {
  gateway.emit("presence", { topic: "rooms.7", copy: "c1", base, version, members, left, ...more });
  await settle();
}

describe("presence", () => {
  it("says the last of many things about this user, with one request while another is under way", async () => {
    const { gateway, room } = await enter();
    await answer(gateway, part([wire("ann")]));
    for (let nth = 0; nth < 200; nth++) room.update({ typing: nth });
    assert.equal(gateway.requests.length, 1);
    assert.deepEqual((await answer(gateway, part([wire("ann")]))).meta, { typing: 0 });
    assert.deepEqual((await answer(gateway, part([wire("ann")]))).meta, { typing: 199 });
    assert.deepEqual([gateway.requests.length, room.status], [0, "live"]);
  });

  it("says the last thing after a break too", async () => {
    const { gateway, room } = await enter();
    await answer(gateway, part([wire("ann")]));
    room.update(1);
    room.update(2);
    gateway.cut();
    await gateway.letIn({}, 2);
    assert.deepEqual((await answer(gateway, part([wire("ann")]))).meta, 2);
    assert.deepEqual([gateway.requests.length, room.status], [0, "live"]);
  });

  it("reads a set of many parts to its end, though this user says something else meanwhile", async () => {
    const { gateway, room } = await enter();
    await answer(gateway, part([wire("ann")], 0, { next: "ann" }));
    room.update(1);
    assert.equal((await answer(gateway, part([wire("ben")]))).act, "page");
    assert.deepEqual(names(room), ["ann", "ben"]);
    assert.equal((await answer(gateway, part([wire("ann"), wire("ben")]))).meta, 1);
    assert.equal(room.status, "live");
  });

  it("enters, shows the members, and reports who joins, changes and leaves", async () => {
    const { gateway, room, reports } = await enter({ meta: { atDoor: true, the_key: 1 } });
    assert.equal(room.status, "loading");
    const body = await answer(gateway, part([wire("ann"), wire("ben", 2, { the_key: 1 })]));
    assert.deepEqual(body, { topic: "rooms.7", act: "enter", meta: { atDoor: true, the_key: 1 } });
    assert.equal(room.status, "live");
    assert.deepEqual(room.members[1], { user: "ben", connections: 2, since: 1000, meta: { the_key: 1 } });
    assert.deepEqual(reports, [], "those who were there have not come");
    const before = room.getSnapshot();
    const changes = [];
    room.on("member:change", (member, previous) => changes.push([member.connections, previous.connections]));
    await notify(gateway, 0, 1, [wire("eve"), wire("ben", 1, { the_key: 1 })], ["ann", "nobody"]);
    assert.deepEqual(reports, ["eve join", "ben change", "ann leave"]);
    assert.deepEqual(changes, [[1, 2]], "with what was so before");
    assert.deepEqual(names(room), ["ben", "eve"]);
    assert.equal(before.members.length, 2, "a snapshot is never changed");
    await notify(gateway, 0, 1, [wire("late")]);
    await notify(gateway, 1, 2, [wire("elsewhere")], [], { topic: "rooms.8" });
    assert.deepEqual(names(room), ["ben", "eve"]);
  });

  it("puts parts and differences together by their versions, in whatever order they come", async () => {
    const { gateway, room } = await enter();
    // Ahead of the first answer, one that it has already, and one that it has not.
    await notify(gateway, 0, 1, [wire("ann", 9)]);
    await notify(gateway, 1, 2, [wire("cid")], ["ann"]);
    await answer(gateway, part([wire("ann"), wire("ben")], 1, { next: "ben" }));
    assert.deepEqual(names(room), [], "not whole yet");
    await notify(gateway, 2, 3, [wire("dan", 3)], ["eve"]);
    // Asked after version 2: it does not know the difference.
    const body = await answer(gateway, part([wire("cid"), wire("dan"), wire("eve")], 2));
    assert.deepEqual(body, { topic: "rooms.7", act: "page", after: "ben" });
    assert.deepEqual(names(room), ["ben", "cid", "dan"]);
    assert.equal(room.get("dan").connections, 3);
  });

  it("reads the set again after a missing difference, a reset or another copy, and reports only what differs", async () => {
    mock.timers.enable({ apis: ["setTimeout"] });
    const { gateway, room, reports } = await enter({ enter: false });
    await answer(gateway, part([wire("ann"), wire("ben")], 5));
    for (const [base, version, more] of [[6, 7, {}], [0, 0, { reset: true }], [5, 6, { copy: "c2" }]]) {
      gateway.emit("presence", { topic: "rooms.7", copy: "c1", base, version, members: [wire("x")], left: [], ...more });
      assert.equal(room.status, "waiting");
      await Promise.resolve();
      assert.deepEqual(names(room), ["ann", "ben"], "those who were known stay");
      mock.timers.tick(500);
      for (let turn = 0; turn < 20; turn++) await Promise.resolve();
      const { body, acknowledge } = gateway.requests.shift();
      assert.deepEqual(body, { topic: "rooms.7", act: "watch" });
      acknowledge(null, part([wire("ann"), wire("ben")], 5));
      for (let turn = 0; turn < 20; turn++) await Promise.resolve();
      assert.equal(room.status, "live");
    }
    assert.deepEqual(reports, []);
  });

  it("stays as it is through a reconnection, and enters again", async () => {
    const { gateway, room, reports } = await enter({ meta: 1 });
    await answer(gateway, part([wire("ann"), wire("ben")], 5));
    gateway.cut();
    await settle();
    assert.deepEqual([room.status, names(room)], ["waiting", ["ann", "ben"]]);
    await gateway.welcome({}, 2);
    const body = await answer(gateway, part([wire("ann", 2), wire("eve")], 0, { copy: "c9" }));
    assert.deepEqual(body, { topic: "rooms.7", act: "enter", meta: 1 });
    assert.deepEqual(reports, ["ben leave", "ann change", "eve join"]);
  });

  it("says why it is refused, and asks again where that can help", async () => {
    const { gateway, room } = await enter();
    const errors = [];
    room.on("presence:error", ({ code }) => errors.push(code));
    await answer(gateway, { ok: false, error: { code: "forbidden", message: "no", retry: false } });
    assert.deepEqual([room.status, room.error.code, errors], ["refused", "forbidden", ["forbidden"]]);
    const other = await enter();
    mock.timers.enable({ apis: ["setTimeout"] });
    other.gateway.requests.shift().acknowledge(null, { ok: false, error: { code: "paused", message: "later", retry: true, retry_after_s: 7 } });
    for (let turn = 0; turn < 20; turn++) await Promise.resolve();
    assert.equal(other.room.status, "waiting");
    mock.timers.tick(6999);
    assert.equal(other.gateway.requests.length, 0);
    mock.timers.tick(3600);
    assert.equal(other.gateway.requests.length, 1);
  });

  it("ends in a topic that a new token does not grant", async () => {
    const { gateway, gate, room, reports } = await enter();
    await answer(gateway, part([wire("ann")]));
    gateway.emit("presence", { topic: "rooms.7", ended: { code: "forbidden", message: "no", retry: false } });
    await settle();
    assert.deepEqual([room.status, room.error.code, names(room), reports], ["refused", "forbidden", [], ["ann leave"]]);
    // Each may grant it again: the server, and a token of the page's.
    gateway.emit("status", { granted: true });
    await answer(gateway, { ok: false, error: { code: "forbidden", message: "no", retry: false } });
    assert.equal(room.status, "refused");
    void gate.refresh("t2");
    await answer(gateway, { ok: true });
    await answer(gateway, part([wire("ann")]));
    assert.deepEqual([room.status, room.error, names(room)], ["live", null, ["ann"]]);
  });

  it("asks again after a growing pause where the gateway has ended it for a passing reason", async () => {
    const { gateway, gate, room, reports } = await enter();
    await answer(gateway, part([wire("ann")]));
    const error = { code: "authorize_failed", message: "no", retry: true };
    gateway.emit("presence", { topic: "rooms.7", ended: error });
    await settle();
    assert.deepEqual([room.status, room.error.code, names(room), reports], ["waiting", "authorize_failed", ["ann"], []]);
    await gateway.until(() => gateway.requests.length === 1);
    await answer(gateway, part([wire("ann")]));
    assert.deepEqual([room.status, room.error], ["live", null]);
    assert.ok(gate.isUp);
  });

  it("refuses what cannot be said at once, and stays as it is", async () => {
    const { gateway, gate } = begin();
    assert.throws(() => presence(gate, "rooms.7", { meta: 1n }), { code: "not_serializable" });
    const room = presence(gate, "rooms.7", { meta: "here" });
    await gateway.welcome({ limits: { max_presence_meta_bytes: 10 } });
    await answer(gateway, part([wire("ann", 1, "here")]));
    assert.equal(room.status, "live");
    for (const [meta, code] of [["x".repeat(9), "payload_too_large"], [1n, "not_serializable"], [() => {}, "not_serializable"]]) {
      assert.throws(() => room.update(meta), { code });
      assert.throws(() => presence(gate, "rooms.7", { meta }), { code });
    }
    assert.deepEqual([gateway.requests, room.status, names(room)], [[], "live", ["ann"]]);
    room.close();
    assert.equal(room.status, "closed");
  });

  it("is one presence for all who ask for it, and leaves with the last of them", async () => {
    const { gateway, gate, room } = await enter({ enter: false });
    await answer(gateway, part([]));
    const again = presence(gate, "rooms.7", { meta: "here" });
    assert.deepEqual(await answer(gateway, part([wire("ann")], 1)), { topic: "rooms.7", act: "enter", meta: "here" });
    again.update("there");
    assert.equal((await answer(gateway, part([wire("ann", 1, "there")], 2))).meta, "there");
    assert.deepEqual([names(room), names(again)], [["ann"], ["ann"]]);
    let reports = 0;
    const reported = mock.method(console, "error", () => {});
    room.subscribe(() => {
      throw Error("this one's fault");
    });
    room.subscribe(() => reports++);
    again.close();
    await notify(gateway, 2, 3, [wire("ben")]);
    assert.equal(gateway.requests.length, 0);
    room.close();
    assert.deepEqual(await answer(gateway, { ok: true }), { topic: "rooms.7", act: "leave" });
    assert.equal(room.status, "closed");
    assert.equal(reports, 2);
    assert.equal(reported.mock.callCount(), reports);
  });

  it("ends for one who asked for it without an effect on another", async () => {
    const { gateway, gate, room, reports } = await enter();
    const other = presence(gate, "rooms.7");
    const seen = [];
    other.on("change member:join", () => seen.push("called"));
    await answer(gateway, part([wire("ann")]));
    seen.length = 0;
    other.close();
    other.close();
    assert.deepEqual([other.status, other.getSnapshot().status, names(other), seen], ["closed", "closed", ["ann"], ["called"]]);
    other.update("late");
    other.off();
    await notify(gateway, 0, 1, [wire("ben")]);
    assert.deepEqual([names(other), seen.length, gateway.requests, room.status, names(room), reports], [["ann"], 1, [], "live", ["ann", "ben"], ["ben join"]]);
  });

  it("refuses what is no topic, and is closed with its gate", async () => {
    const { gate, room } = await enter();
    assert.throws(() => presence(gate, "rooms.*"), { code: "invalid_topic" });
    gate.close();
    await settle();
    assert.equal(room.status, "closed");
  });
});
