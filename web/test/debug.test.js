/** The debug log: a line for each transition where it is on, nothing at all where it is off. */
import assert from "node:assert/strict";
import { afterEach, describe, it, mock } from "node:test";
import { debug } from "#headgate/debug";
import { connect } from "#headgate";
import { FakeGateway, settle } from "./fake-gateway.js";

/** @type {any} */
let gate;
afterEach(() => {
  gate.close();
  mock.restoreAll();
  Reflect.deleteProperty(globalThis, "localStorage");
});

function begin(storage) {
  Object.defineProperty(globalThis, "localStorage", { configurable: true, ...(typeof storage === "function" ? { get: storage } : { value: storage }) });
  /** @type {string[]} */
  const lines = [];
  mock.method(console, "log", (...words) => lines.push(words.map((word) => (typeof word === "string" ? word.replace(/^headgate \d+\.\d{3} s$/, "headgate") : word.code ?? "…")).join(" ")));
  const gateway = new FakeGateway();
  gate = connect("http://gateway.test", { io: gateway.io });
  return { gateway, lines };
}

describe("the debug log", () => {
  it("has one line for each transition of the status and of a subscription, and for each loss and error", async () => {
    const { gateway, lines } = begin({ getItem: () => "debug" });
    const end = debug(gate);
    gate.on("a", () => {});
    await gateway.welcome();
    await settle();
    gateway.emit("gap", { patterns: ["a"], from: 1, to: 2, count: 2, bytes: 9, reason: "trimmed", recoverable: false });
    await settle();
    gate.off("a");
    await settle();
    assert.deepEqual(lines.filter((line) => line.includes("→") && !line.includes("status")), ["headgate a: idle → wanted", "headgate a: wanted → active", "headgate a: active → idle"]);
    assert.ok(lines.some((line) => /^headgate status: \w+ → live /.test(line)), lines.join("\n"));
    for (const name of ["connection:up", "delivery:gap"]) assert.equal(lines.filter((line) => line === `headgate ${name} …`).length, 1, lines.join("\n"));
    const count = lines.length;
    end();
    gateway.cut();
    await settle();
    assert.equal(lines.length, count);
  });

  for (const [what, storage] of Object.entries({ "another value": { getItem: () => "on" }, "no storage": undefined, "a storage that throws": () => { throw Error("denied"); } })) {
    it(`listens to nothing where there is ${what}`, async () => {
      const { gateway, lines } = begin(storage);
      const listen = mock.method(gate, "on");
      debug(gate)();
      await gateway.welcome();
      await settle();
      assert.deepEqual([lines, listen.mock.callCount()], [[], 0]);
    });
  }
});
