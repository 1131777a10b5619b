/**
 * The debug log: one line in the console for each transition of a gate. `connect` loads it if `localStorage.headgate` is "debug".
 *
 * In: lifecycle events. Out: lines, each with the seconds since the log began.
 *
 * @import { Gate } from "./gate.js"
 */

/** Events logged unchanged. Transitions of the status and of subscriptions have their own lines. */
const NAMES = ["connection:up", "connection:down", "connection:refused", "connection:unauthorized", "connection:moving", "delivery:gap", "delivery:backpressure", "delivery:resumed", "delivery:error"];

/** Log the transitions of a gate until it closes. @param {Gate} gate */
export function debug(gate) {
  const beganMs = performance.now();
  const line = (/** @type {any[]} */ ...words) => console.log(`headgate ${((performance.now() - beganMs) / 1000).toFixed(3)} s`, ...words);
  /** @type {Record<string, string>} */
  let known = {};
  const subscriptions = () => {
    const now = /** @type {Record<string, string>} */ (gate.state.subscriptions);
    for (const pattern of new Set([...Object.keys(known), ...Object.keys(now)])) {
      const [before, is] = [known, now].map((each) => each[pattern] ?? "idle");
      if (before !== is) line(`${pattern}: ${before} → ${is}`);
    }
    known = now;
  };
  const part = { _isPart: true };
  for (const name of NAMES) gate.on(name, (/** @type {any[]} */ ...args) => line(name, ...args), part);
  gate.on("status:change", (/** @type {any} */ { previous, status, reason }) => line(`status: ${previous} → ${status}`, reason), part);
  gate.on("state:change", subscriptions, part);
  line(`status: ${gate.status}`, gate.address);
  subscriptions();
}
