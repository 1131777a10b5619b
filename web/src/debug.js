/**
 * The entry point `headgate/debug`: one line in the console for each transition of a gate, where `localStorage.headgate` is "debug".
 *
 * In: lifecycle events. Out: lines, each with the seconds since the log began. Otherwise it reads the setting once and listens to nothing.
 *
 * @import { Gate } from "./gate.js"
 */
import { Dispatcher } from "./index.js";

/** Events logged unchanged. Transitions of the status and of subscriptions have their own lines. */
const NAMES = ["connection:up", "connection:down", "connection:refused", "connection:unauthorized", "connection:moving", "delivery:gap", "delivery:backpressure", "delivery:resumed", "delivery:error"];

/**
 * Log the transitions of a gate, if the page's user has asked for it: `localStorage.headgate = "debug"`, then reload.
 * @param {Gate} gate
 * @returns {() => void} ends the log
 */
export function debug(gate) {
  if (!isOn()) return () => {};
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
  const listener = new Dispatcher();
  for (const name of NAMES) listener.listenTo(gate, name, (/** @type {any[]} */ ...args) => line(name, ...args));
  listener.listenTo(gate, "status:change", (/** @type {any} */ { previous, status, reason }) => line(`status: ${previous} → ${status}`, reason));
  listener.listenTo(gate, "state:change", subscriptions);
  line(`status: ${gate.status}`, gate.address);
  subscriptions();
  return () => void listener.stopListening();
}

/** A page may have no storage, or may not read it. */
function isOn() {
  try {
    return globalThis.localStorage?.getItem("headgate") === "debug";
  } catch {
    return false;
  }
}
