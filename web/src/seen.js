/**
 * Seen: tells the gateway which events the user was shown, so that nobody need mail them.
 *
 * In: event ids, and the news that there is a connection again. Out: one request at a time, of at most MAX_IDS ids, a second
 * after the first of them was given. What fails and may be tried again is, later and later, and at once after a reconnect.
 * What will never be told (too many wait, or the gateway refuses: it does not know who we are) is told to `lose`.
 *
 * @import { Gate } from "./gate.js"
 */
const BATCH_MS = 1000;
const LONGEST_MS = 60_000;
const MAX_IDS = 100;
const MAX_WAITING = 1000;
// A notification may have an id of the application's, which no event has.
const EVENT_ID = /^[A-Za-z0-9_.:~-]{1,128}$/;

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
  let busy = false;
  let refused = false;

  const plan = () => {
    clearTimeout(timer);
    if (waiting.size && !busy) timer = setTimeout(tell, waitMs);
  };
  const tell = async () => {
    const ids = [...waiting].slice(0, MAX_IDS);
    busy = true;
    try {
      await gate.seen(ids);
      for (const id of ids) waiting.delete(id);
      waitMs = BATCH_MS;
    } catch (/** @type {any} */ error) {
      waitMs = Math.min(2 * waitMs, LONGEST_MS);
      if (!error.retry) {
        refused = true;
        lose(waiting.size, error);
        waiting.clear();
      }
    }
    busy = false;
    plan();
  };

  return {
    /** @param {any} id of an event; anything else is left out */
    add(id) {
      if (refused || !(typeof id === "string" && EVENT_ID.test(id)) || waiting.has(id)) return;
      waiting.add(id);
      if (waiting.size > MAX_WAITING) {
        waiting.delete(/** @type {string} */ (waiting.values().next().value));
        lose(1);
      }
      // The first one sets the time; those that follow go along.
      if (waiting.size === 1) plan();
    },
    /** There is a connection again. */
    again() {
      waitMs = BATCH_MS;
      plan();
    },
  };
}
