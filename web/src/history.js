/**
 * The entry point `headgate/history`: past events of a pattern as a value, for a list that loads more when the user scrolls.
 *
 * In: the position below which events are wanted. Out: events, newest first, and the position of the next part. No handler is called, and the client's own
 * position does not change.
 *
 * @import { HeadgateEvent } from "./gate.js"
 * @import { EventMeta, Position } from "./language/protocol.js"
 */
import { POSITION } from "./language/options.js";
import { HISTORY } from "./language/protocol.js";
import { checkPattern, Gate } from "./index.js";

/** The most events of one answer. */
const MOST = 100;
const MINE = "users.me.";
/** @type {import("./language/options.js").Table} */
const OPTIONS = { before: [POSITION], limit: [[1, 1000, true], 50] };

/**
 * Return the newest events of a pattern, or the newest below a position. It reads as many pages of the log as it needs, at the gateway's rate, so a pattern
 * that few events match takes longer.
 * @param {Gate} gate
 * @param {string} pattern
 * @param {{ before?: Position | null, limit?: number }} [options] `before`: from the previous, newer part
 * @returns {Promise<{ events: HeadgateEvent[], before: Position | null }>} newest first; `before` is null if the log has no older ones; rejected with HeadgateError
 */
export async function history(gate, pattern, options = {}) {
  const { limit, before } = Gate._optionsOf(gate, "history", OPTIONS, options);
  const wired = gate._wired(checkPattern(pattern));
  // Topics of this user begin with `users.me.` if their pattern does.
  const own = wired !== pattern && wired.slice(0, wired.length - pattern.length + MINE.length);
  /** @type {HeadgateEvent[]} */
  const events = [];
  let place = before;
  do {
    const answer = await gate._request(HISTORY, { pattern: wired, before: place, limit: Math.min(MOST, limit - events.length) });
    for (const [name, data, meta] of /** @type {[string, any, EventMeta][]} */ (answer.events)) {
      const topic = own ? MINE + name.slice(own.length) : name;
      events.push({ id: null, offset: null, replayed: true, ...meta, topic, data, pattern });
    }
    place = answer.before;
  } while (place && events.length < limit);
  return { events, before: place };
}
