/**
 * Seen: tells the gateway which events the user was shown, so that consumers need not mail them.
 *
 * In: event ids, and word that there is a connection again. Out: one request at a time, of at most MAX_IDS ids, a second
 * after the first of them was given. A request that failed and may be tried again is, later and later, and at once after a
 * reconnection. Ids that will never be told (too many wait, or the gateway refuses: it does not know the user) are counted
 * to `lose`.
 *
 * @import { Gate } from "../gate.js"
 */
import { Machine } from "../base/machine.js";

const BATCH_MS = 1000;
const LONGEST_MS = 60_000;
const MAX_IDS = 100;
const MAX_WAITING = 1000;
// A notification may have an id of the application's, which no event has.
const EVENT_ID = /^[A-Za-z0-9_.:~-]{1,128}$/;

/**
 * `planned`: a timer will send · `sending`: a request is in flight · `refused`: for good.
 * @type {Record<"idle" | "planned" | "sending" | "refused", Partial<Record<"plan" | "send" | "end" | "refuse", "idle" | "planned" | "sending" | "refused">>>}
 */
export const SEEN = {
  idle: { plan: "planned" },
  planned: { plan: "planned", send: "sending" },
  sending: { end: "idle", refuse: "refused" },
  refused: {},
};

/**
 * @param {Gate} gate
 * @param {(count: number, error?: any) => void} lose
 */
export function createSeen(gate, lose) {
  /** @type {Set<string>} */
  const waiting = new Set();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let waitMs = BATCH_MS;
  const state = new Machine(SEEN, "idle");

  const plan = () => {
    if (!waiting.size || !state.offer("plan")) return;
    clearTimeout(timer);
    timer = setTimeout(send, waitMs);
  };
  const send = async () => {
    state.take("send");
    const ids = [...waiting].slice(0, MAX_IDS);
    try {
      await gate.seen(ids);
      for (const id of ids) waiting.delete(id);
      waitMs = BATCH_MS;
    } catch (/** @type {any} */ error) {
      waitMs = Math.min(2 * waitMs, LONGEST_MS);
      if (!error.retry) {
        state.take("refuse");
        lose(waiting.size, error);
        waiting.clear();
        return;
      }
    }
    state.take("end");
    plan();
  };

  return {
    /** @param {any} id of an event; anything else is left out */
    add(id) {
      if (state.is("refused") || !(typeof id === "string" && EVENT_ID.test(id)) || waiting.has(id)) return;
      waiting.add(id);
      if (waiting.size > MAX_WAITING) {
        waiting.delete(/** @type {string} */ (waiting.values().next().value));
        lose(1);
      }
      // The first one sets the time; those that follow go along.
      if (state.is("idle")) plan();
    },
    /** There is a connection again. */
    again() {
      waitMs = BATCH_MS;
      plan();
    },
  };
}
