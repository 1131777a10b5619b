/**
 * The stream: `gate.events`, events of a pattern as an async iterator, bounded.
 *
 * A loop body that is slower than the events come makes them wait here. Beyond `limit` the oldest are discarded, and
 * `delivery:gap` says how many and which, with `where: "iterator"`, before the loop sees anything later.
 *
 * @import { Gate, HeadgateEvent, SubscribeOptions } from "./gate.js"
 * @param {Gate} gate
 * @param {string} pattern
 * @param {HeadgateEvent[]} line what has come since the loop began; whatever comes is pushed
 * @param {SubscribeOptions & { limit?: number }} [options] `limit`: events that may wait
 * @returns {AsyncGenerator<HeadgateEvent, void, void>}
 */
export async function* events(gate, pattern, line, { limit = 256, signal } = {}) {
  let wake = () => {};
  const stirred = () => wake();
  const lost = { count: 0, from: /** @type {number | null} */ (null), to: /** @type {number | null} */ (null) };
  const bound = () => {
    for (const { offset } of line.splice(0, line.length - limit)) {
      lost.count++;
      lost.from ??= offset;
      lost.to = offset ?? lost.to;
    }
  };
  line.push = (event) => {
    line[line.length] = event;
    bound();
    wake();
    return line.length;
  };
  signal?.addEventListener("abort", stirred, { once: true });
  gate.on("state:change", stirred);
  try {
    bound();
    while (!signal?.aborted && gate.state.connection !== "closed") {
      if (lost.count) {
        gate.trigger("delivery:gap", { patterns: [pattern], bytes: null, reason: "overflow", recoverable: true, repairing: false, lost: false, where: "iterator", ...lost });
        Object.assign(lost, { count: 0, from: null, to: null });
      }
      const event = line.shift();
      if (event) yield event;
      else await new Promise((resolve) => (wake = () => resolve(undefined)));
    }
  } finally {
    gate.off("state:change", stirred);
    signal?.removeEventListener("abort", stirred);
  }
}
