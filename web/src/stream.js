/**
 * The stream: `gate.events`, events of a pattern as an async iterator, bounded.
 *
 * A loop body that is slower than the events come makes them wait here. Beyond `limit` the oldest are discarded, and
 * `delivery:gap` says how many and which, with `where: "iterator"`, before the loop sees anything later. If more came than can
 * wait before this file was there, they all go, and nobody knows how many they were: `count` and `to` are null.
 *
 * @import { Gate, HeadgateEvent, SubscribeOptions } from "./gate.js"
 */
import { LAST_EARLY } from "./early.js";

/**
 * @param {Gate} gate
 * @param {string} pattern
 * @param {HeadgateEvent[]} line what has come since the loop began; whatever comes is pushed
 * @param {SubscribeOptions & { limit?: number }} [options] `limit`: events that may wait, at most LAST_EARLY
 * @returns {AsyncGenerator<HeadgateEvent, void, void>}
 */
export async function* events(gate, pattern, line, { limit = 256, signal } = {}) {
  let wake = () => {};
  const stirred = () => wake();
  const nothing = { count: /** @type {number | null} */ (0), from: /** @type {number | null} */ (null), to: /** @type {number | null} */ (null) };
  const lost = { ...nothing };
  const most = Math.min(limit, LAST_EARLY);
  const bound = () => {
    for (const { offset } of line.splice(0, line.length - most)) {
      lost.count = Number(lost.count) + 1;
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
    if (line[LAST_EARLY]) Object.assign(lost, { count: null, from: line.splice(0)[0].offset });
    bound();
    while (!signal?.aborted && gate.state.connection !== "closed") {
      if (lost.count !== 0) {
        gate.trigger("delivery:gap", { patterns: [pattern], bytes: null, reason: "overflow", recoverable: true, repairing: false, lost: false, where: "iterator", ...lost });
        Object.assign(lost, nothing);
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
