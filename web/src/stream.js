/**
 * `headgate/stream`: events of a pattern as an async iterator, bounded. `for await (const event of events(gate, "orders.#"))`.
 *
 * A loop body that is slower than the events come makes them wait here. Beyond `limit` the oldest are discarded, and
 * `delivery:gap` says how many and which, with `where: "iterator"`, before the loop sees anything later.
 *
 * @import { Gate, HeadgateEvent, SubscribeOptions } from "./gate.js"
 * @param {Gate} gate
 * @param {string} pattern
 * @param {SubscribeOptions & { limit?: number }} [options] `limit`: events that may wait
 * @returns {AsyncGenerator<HeadgateEvent, void, void>}
 */
export async function* events(gate, pattern, { limit = 256, signal, ...options } = {}) {
  /** @type {HeadgateEvent[]} */
  const waiting = [];
  let wake = () => {};
  const lost = { count: 0, from: /** @type {number | null} */ (null), to: /** @type {number | null} */ (null) };
  const subscription = gate.subscribe(pattern, { ...options, signal }, (_data, event) => {
    waiting.push(event);
    if (waiting.length > limit) {
      const { offset } = /** @type {HeadgateEvent} */ (waiting.shift());
      lost.count++;
      lost.from ??= offset;
      lost.to = offset ?? lost.to;
    }
    wake();
  });
  signal?.addEventListener("abort", () => wake(), { once: true });
  const over = () => signal?.aborted || gate.state.connection === "closed";
  const closing = () => gate.state.connection === "closed" && wake();
  gate.on("state:change", closing);
  try {
    while (!over()) {
      if (lost.count) {
        gate.trigger("delivery:gap", { patterns: [pattern], bytes: null, reason: "overflow", recoverable: true, repairing: false, lost: false, where: "iterator", ...lost });
        Object.assign(lost, { count: 0, from: null, to: null });
      }
      const event = waiting.shift();
      if (event) yield event;
      else await new Promise((resolve) => (wake = () => resolve(undefined)));
    }
  } finally {
    gate.off("state:change", closing);
    subscription.close();
  }
}
