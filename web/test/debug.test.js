/** The debug log: a line for each transition where it is on, nothing at all where it is off. */
import assert from "node:assert/strict";
import { afterEach, describe, it, mock } from "node:test";
import { connect } from "#headgate";
import { FakeGateway, settle } from "./fake-gateway.js";

/** @type {any} */
let gate;
afterEach(() => {
  gate.close();
  mock.restoreAll();
  for (const name of ["localStorage", "document"]) Reflect.deleteProperty(globalThis, name);
});

function begin(storage, document = {}) {
  Object.defineProperty(globalThis, "document", { configurable: true, value: document });
  Object.defineProperty(globalThis, "localStorage", { configurable: true, ...(typeof storage === "function" ? { get: storage } : { value: storage }) });
  /** @type {string[]} */
  const lines = [];
  mock.method(console, "log", (...words) => lines.push(words.map((word) => (typeof word === "string" ? word.replace(/^headgate \d+\.\d{3} s$/, "headgate") : word.code ?? "…")).join(" ")));
  const gateway = new FakeGateway();
  gate = connect("http://gateway.test", { io: gateway.io, autoConnect: false });
  return { gateway, lines };
}

describe("the debug log", () => {
  it("has one line for each transition of the status and of a subscription, and for each loss and error, until the gate closes", async () => {
    const { gateway, lines } = begin({ headgate: "debug" });
    await gateway.until(() => lines.length, "the log to be loaded");
    gate.on("a", () => {});
    gate.open();
    await gateway.letIn();
    gateway.emit("gap", { patterns: ["a"], from: 1, to: 2, count: 2, bytes: 9, reason: "trimmed", recoverable: false });
    await settle();
    gate.off("a");
    await settle();
    assert.deepEqual(lines.filter((line) => line.includes("→") && !line.includes("status")), ["headgate a: idle → wanted", "headgate a: wanted → active", "headgate a: active → idle"]);
    assert.ok(lines.some((line) => /^headgate status: \w+ → live /.test(line)), lines.join("\n"));
    for (const name of ["connection:up", "delivery:gap"]) assert.equal(lines.filter((line) => line === `headgate ${name} …`).length, 1, lines.join("\n"));
    gate.close();
    assert.match(/** @type {string} */ (lines.at(-1)), /^headgate status: \w+ → closed/);
  });

  for (const [what, storage] of Object.entries({ "another value": { headgate: "on" }, "no storage": undefined, "a storage that throws": () => { throw Error("denied"); } })) {
    it(`listens to nothing where there is ${what}`, async () => {
      const { gateway, lines } = begin(storage);
      const listen = mock.method(gate, "on");
      gate.open();
      await gateway.letIn();
      assert.deepEqual([lines, listen.mock.callCount()], [[], 0]);
    });
  }

  it("does not touch the storage of a server, where Node warns about it", () => {
    const read = mock.fn();
    begin(read, null);
    assert.equal(read.mock.callCount(), 0);
  });

  it("is a warning where it cannot be loaded or begin", async () => {
    const warned = mock.method(console, "warn", () => {});
    begin({ headgate: "debug" });
    mock.method(console, "log", () => { throw Error("no console"); });
    gate = connect("http://gateway.test", { autoConnect: false });
    for (let turn = 0; turn < 5; turn++) await settle();
    assert.ok(warned.mock.calls.some(({ arguments: [error] }) => error.message === "no console"));
  });
});
