/**
 * Replays: the parts of the log that subscriptions have asked for (`since`), each until it is over. No I/O.
 *
 * In: `expect` when a handler asks, the offsets of events. Out: which replayed events a pattern's handlers may see, and where
 * a replay goes on after a reconnection. The gateway sends a replay in order and then everything later, so the first new event
 * after some of it ends it. Events that were under way before any of it came may reach the pattern's handlers too; they are
 * noted, so that they do not come twice.
 *
 * Handlers of one pattern may ask for several. The gateway reads them in one go, from the earliest place on: it goes back to the start of
 * a later one, if that lies before. So one that is asked for while another is being read may go back once, and cuts nothing short.
 *
 * @import { Position, Since } from "../language/protocol.js"
 * @typedef {{ asked: Since[], last: number, begun: boolean, later: Since[], noted: Set<number> }} Replay `asked`: all that is not over;
 *   `last`: the latest offset of it that came; `begun`: some of it has come since it was asked for the last time; `later`: those of `asked`
 *   that may go back behind `last`
 */
import { withSince } from "../language/since.js";

/** Events that may be noted before a replay begins; if that many come first, it will not begin any more. */
const MAX_NOTED = 1000;
/** Below every offset: nothing of it has come. */
const NOTHING = -1;

export function createReplays() {
  /** @type {Map<string, Replay>} by pattern */
  const replays = new Map();

  return {
    /** Expect a replay for a pattern. @param {string} pattern @param {Since} since */
    expect(pattern, since) {
      const replay = replays.get(pattern) ?? { asked: [], last: NOTHING, begun: false, later: [] };
      replays.set(pattern, { ...replay, asked: withSince(replay.asked, since), later: replay.begun ? [...replay.later, since] : [], noted: new Set() });
    },

    /**
     * Ask again for the unfinished replays, each from where it continues: after an offset that the client knows.
     * @param {(pattern: string, replays: Since[]) => void} ask @param {Position} [position] of the client
     */
    rewind(ask, position) {
      for (const [pattern, replay] of replays) {
        replay.begun = false;
        replay.asked = replay.asked.map((since) => ("offset" in since ? { ...position, ...since } : since));
        ask(pattern, replay.asked);
      }
    },

    /** A pattern is acknowledged, with the newest offset of the log: later events are not part of a replay. @param {string} pattern @param {number} [to] none: it was given up */
    acknowledge(pattern, to = Infinity) {
      const replay = replays.get(pattern);
      if (replay) replay.asked = replay.asked.map((since) => ("offset" in since ? { ...since, offset: Math.min(since.offset, to) } : since));
    },

    /** The pattern has no handlers any more. @param {string} pattern */
    forget: (pattern) => replays.delete(pattern),

    /** The log has lost its end: what was seen of it above an offset counts for nothing. @param {number} to */
    rollBack(to) {
      for (const replay of replays.values()) {
        const lower = (/** @type {Since} */ since) => ("offset" in since && !since.epoch ? { offset: Math.max(0, Math.min(since.offset, to)) } : since);
        replay.asked = replay.asked.map(lower);
        replay.later = replay.later.map(lower);
        replay.last = Math.min(replay.last, to);
        for (const offset of replay.noted) if (offset > to) replay.noted.delete(offset);
      }
    },

    /** A new event came: each replay that was coming is over. */
    pass() {
      for (const [pattern, { begun, later }] of replays) {
        if (!begun) continue;
        replays.delete(pattern);
        // Those requested since then may follow it.
        for (const since of later) this.expect(pattern, since);
      }
    },

    /**
     * Return whether the handlers of a pattern may see an event: a new one always, an old one if it belongs to the replay.
     * @param {string} pattern @param {number} offset @param {boolean} isNew
     */
    admit(pattern, offset, isNew) {
      const replay = replays.get(pattern);
      if (isNew) {
        if (replay && replay.noted.add(offset).size > MAX_NOTED) replays.delete(pattern);
        return true;
      }
      if (!replay || replay.noted.has(offset) || (offset <= replay.last && !replay.later.shift())) return false;
      replay.last = offset;
      replay.asked = replay.later.length ? replay.asked : [{ offset }];
      replay.begun = true;
      return true;
    },
  };
}
