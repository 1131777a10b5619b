/**
 * The entry point `headgate/history`: a part of the past of a pattern as a value, for a list that loads more when it is scrolled.
 *
 * In: the position below which events are wanted. Out: events, newest first, and the position of the next part. No handler is called, and
 * the client's own position stays.
 *
 * @import { HeadgateEvent } from "./gate.js"
 * @import { EventMeta, Position } from "./language/protocol.js"
 */
import { POSITION } from "./language/options.js";
import { HISTORY } from "./language/protocol.js";
import { checkPattern, Gate } from "./index.js";

/** The most events of an answer. */
const MOST = 100;
const MINE = "users.me.";
/** @type {import("./language/options.js").Table} */
const OPTIONS = { before: [POSITION], limit: [[1, 1000, true], 50] };

/**
 * Return the newest events of a pattern below a position, or the newest of all. It takes as many pages of the log as it needs, at the
 * gateway's rate, so a pattern that few events match takes longer.
 * @param {Gate} gate
 * @param {string} pattern
 * @param {{ before?: Position | null, limit?: number }} [options] `before`: of the part before this one
 * @returns {Promise<{ events: HeadgateEvent[], before: Position | null }>} newest first; `before` is null where the log has no older ones; rejected with HeadgateError
 */
export async function history(gate, pattern, options = {}) {
  const { limit, before } = Gate._optionsOf(gate, "history", OPTIONS, options);
  const wired = gate._wired(checkPattern(pattern));
  // A topic of this user begins as its pattern does in the page.
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
