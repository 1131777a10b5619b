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
 * A subscription that was active, and is not for now, misses what comes after the client's position. It asks for that once it is active again.
 * Some of it may come for other patterns meanwhile, also from replays of theirs, so all that came is noted. It is over with the first event
 * above the acknowledgement.
 *
 * @import { Position, Since } from "../language/protocol.js"
 * @typedef {{ position: Position, to: number, epoch?: string, had: Set<number> }} Miss `to`, `epoch`: of the acknowledgement
 * @typedef {{ asked: Since[], last: number, begun: boolean, later: Since[], noted: Set<number> }} Replay `asked`: all that is not over;
 *   `last`: the latest offset of it that came; `begun`: some of it has come since it was asked for the last time; `later`: those of `asked`
 *   that may go back behind `last`
 */
import { withSince } from "../language/since.js";

/** Events that may be noted before a replay begins; if that many come first, it will not begin any more. */
const MAX_NOTED = 1000;
/** Events that may come while a subscription misses some; beyond that they count as lost. */
const MAX_HAD = 10_000;
/** Below every offset: nothing of it has come. */
const NOTHING = -1;

/** @param {(pattern: string) => void} [givenUp] called when too many events come to know which are missing */
export function createReplays(givenUp = () => {}) {
  /** @type {Map<string, Replay>} by pattern */
  const replays = new Map();
  /** @type {Map<string, Miss>} by pattern */
  const misses = new Map();

  return {
    /** Expect a replay for a pattern. @param {string} pattern @param {Since} since */
    expect(pattern, since) {
      misses.get(pattern)?.had.clear();
      const replay = replays.get(pattern) ?? { asked: [], last: NOTHING, begun: false, later: [] };
      replays.set(pattern, { ...replay, asked: withSince(replay.asked, since), later: replay.begun ? [...replay.later, since] : [], noted: new Set() });
    },

    /** A pattern's handlers miss everything after a position. Return what to ask for, and for what first. @param {string} pattern @param {Position} position @param {Since[]} asked for already */
    miss(pattern, position, asked) {
      const miss = misses.get(pattern) ?? { position, to: Infinity, had: new Set() };
      miss.to = Infinity;
      misses.set(pattern, miss);
      return [miss.position, ...asked.filter((since) => since !== miss.position)];
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
      for (const pattern of misses.keys()) ask(pattern, this.miss(pattern, /** @type {Position} */ (position), replays.get(pattern)?.asked ?? []));
    },

    /** A pattern is acknowledged, with the newest offset of the log: later events are not part of a replay. @param {string} pattern @param {number} [to] @param {string} [epoch] */
    acknowledge(pattern, to = Infinity, epoch) {
      const miss = misses.get(pattern);
      if (miss) Object.assign(miss, { to, epoch });
      const replay = replays.get(pattern);
      if (replay) replay.asked = replay.asked.map((since) => ("offset" in since ? { ...since, offset: Math.min(since.offset, to) } : since));
    },

    /** The pattern has no handlers any more. @param {string} pattern */
    forget(pattern) {
      misses.delete(pattern);
      replays.delete(pattern);
    },

    /** The log has lost its end: what was seen of it above an offset counts for nothing. @param {number} to */
    rollBack(to) {
      for (const miss of misses.values()) {
        miss.position = { ...miss.position, offset: Math.max(0, Math.min(miss.position.offset, to)) };
        for (const offset of miss.had) if (offset > to) miss.had.delete(offset);
      }
      for (const replay of replays.values()) {
        const lower = (/** @type {Since} */ since) => ("offset" in since && !since.epoch ? { offset: Math.max(0, Math.min(since.offset, to)) } : since);
        replay.asked = replay.asked.map(lower);
        replay.later = replay.later.map(lower);
        replay.last = Math.min(replay.last, to);
        for (const offset of replay.noted) if (offset > to) replay.noted.delete(offset);
      }
    },

    /** A new event came: each replay that was coming is over. @param {number} offset @param {string} epoch */
    pass(offset, epoch) {
      // An acknowledgement may be of a later epoch than the event.
      for (const [pattern, miss] of misses) if (offset > miss.to && epoch === miss.epoch) misses.delete(pattern);
      for (const [pattern, { begun, later }] of replays) {
        if (!begun) continue;
        replays.delete(pattern);
        // Those requested since then may follow it.
        for (const since of later) this.expect(pattern, since);
      }
    },

    /** Return whether an event that the handlers of a pattern miss comes for the first time; true for any other. @param {string} pattern @param {number} offset */
    isFirst(pattern, offset) {
      const miss = misses.get(pattern);
      if (!miss || offset <= miss.position.offset) return true;
      const isFirst = miss.had.size < miss.had.add(offset).size;
      if (miss.had.size > MAX_HAD) {
        misses.delete(pattern);
        givenUp(pattern);
      }
      return isFirst;
    },

    /**
     * Return whether the handlers of a pattern may see an event: a new one always, an old one if it belongs to the replay.
     * @param {string} pattern @param {number} offset @param {boolean} isNew
     */
    admit(pattern, offset, isNew) {
      const miss = misses.get(pattern);
      if (miss && offset > miss.position.offset) return this.isFirst(pattern, offset);
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
