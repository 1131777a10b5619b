import { afterEach, mock } from "node:test";
import { connect } from "#headgate";
import { FakeGateway } from "./fake-gateway.js";

/** @type {import("#headgate").Gate[]} */
const gates = [];
afterEach(() => {
  for (const gate of gates.splice(0)) gate.close();
  mock.restoreAll();
});

/** Make a gateway and a gate, which closes after the test. */
export function begin(options = {}) {
  const gateway = new FakeGateway();
  const gate = connect("http://gateway.test", { io: gateway.io, ...options });
  gates.push(gate);
  return { gateway, gate };
}
