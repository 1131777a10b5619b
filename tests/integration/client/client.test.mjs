/** The browser client, as it is published, from Node against a real gateway with a real Redis. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, afterEach, before, it } from "node:test";
import { fileURLToPath } from "node:url";
import { connect } from "headgate";
import { GatewayProcess, patient, until } from "./gateway-process.mjs";

/** @type {GatewayProcess} */
let gateway;
/** @type {import("headgate").Gate[]} */
const gates = [];

function open() {
  const gate = patient(connect(gateway.url, { reconnectDelayMinMs: 20, reconnectDelayMaxMs: 100 }));
  gates.push(gate);
  return gate;
}

/** @param {import("headgate").Gate} gate */
const isUp = (gate) => until(() => gate.state.connection === "up", "the connection to be up");

before(async () => {
  gateway = await new GatewayProcess().start();
});

afterEach(() => {
  for (const gate of gates.splice(0)) gate.close();
});

after(() => gateway?.remove());

it("agrees with the gateway on the size of text beyond ASCII", async () => {
  const gate = open();
  await isUp(gate);
  for (const character of ["é", "€", "😀", "\u2028"]) {
    const bytes = new TextEncoder().encode(character).length;
    const data = character.repeat(Math.floor((65536 - 2) / bytes));
    const { offset } = await gate.publish("size.text", data);
    assert.ok(offset > 0, character);
  }
});

it("gives the past to a subscription that is part of the first CONNECT", async () => {
  const first = open();
  await isUp(first);
  const offsets = [];
  for (let n = 0; n < 5; n++) offsets.push((await first.publish("early.a", n)).offset);
  const gate = open();
  /** @type {any[]} */
  const got = [];
  gate.subscribe("early.*", { since: { last: 3 } }, (_data, { offset }) => got.push(offset));
  await until(() => got.length >= 3, "the past");
  offsets.push((await first.publish("early.b", 5)).offset);
  await until(() => got.length >= 4, "the new event");
  assert.deepEqual(got, offsets.slice(2));
});

it("lets the process end once it is closed", async () => {
  const script = `
    import { connect, events } from "headgate";
    const gate = connect(${JSON.stringify(gateway.url)});
    gate.once("end.me", () => gate.close());
    gate.once("connection:up", () => gate.publish("end.me", 1).catch(() => {}));
  `;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", script], {
    cwd: fileURLToPath(new URL(".", import.meta.url)), stdio: "inherit",
  });
  let code;
  child.once("exit", (ended) => {
    code = ended;
  });
  await until(() => code !== undefined, "the process to end by itself").finally(() => child.kill("SIGKILL"));
  assert.equal(code, 0);
});
