/**
 * Replays: the parts of the log that subscriptions have asked for (`since`) or miss, each until it is over. No I/O.
 *
 * In: `expect` when a handler asks, `miss` when an active subscription is interrupted, acknowledgements, the offsets of events. Out: which replayed events a
 * pattern's handlers may see, and where a replay continues after a reconnection. The gateway sends a replay in order and then everything later, so the
 * first new event above the acknowledgement ends it.
 *
 * A replayed event may belong to the replay of another pattern that matches the same topic. Handlers see such an event too if it lies after the start of
 * their own replay, which the acknowledgement names, but it does not show how far their own replay is. So the client notes every event until the replay is
 * over, and asks for the whole replay again. If an event can only belong to its own replay, because the welcome has acknowledged it or no other replay is
 * under way, everything before it has come too, and the replay continues from there.
 *
 * Handlers of one pattern may ask for several replays. The gateway reads them in one pass, from the earliest start; for a later request that starts earlier
 * it goes back. Events that came before a handler asked may come once more.
 *
 * @import { Position, Since } from "../language/protocol.js"
 * @typedef {{ asked: Since[], from: number, after: number, had: Set<number>, beyond: number, to: number, epoch?: string, own?: boolean }} Replay `asked`:
 *   everything that is not over; `from`: no event at or below that offset is a part of it; `after`: the same for what has been acknowledged; `had`: the
 *   offsets above it that came; if they were too many, those up to `beyond` are missing; `to`, `epoch`: of the acknowledgement; `own`: whether it is certain
 *   that the gateway sends this replay
 */
import { withSince } from "../language/since.js";

/** The most noted events of one replay. */
const MAX_HAD = 10_000;
/** Below every offset. Nothing of it has come. */
const NOTHING = -1;

/**
 * @param {(pattern: string) => void} givenUp called when so many events have come that the missing ones are unknown
 * @param {(pattern: string) => void} [over] called when a pattern's handlers have everything up to the client's position
 */
export function createReplays(givenUp, over = () => {}) {
  /** @type {Map<string, Replay>} by pattern */
  const replays = new Map();
  /** Whether events of an abandoned replay may be on their way. */
  let isMixed = false;

  /**
   * @param {string} pattern @param {Since} since @param {number} start no event at or below it is a part of the replay
   * @param {Set<number>} [had]
   */
  function add(pattern, since, start, had = new Set()) {
    const replay = replays.get(pattern);
    if (replay) isMixed = true;
    const { asked = [], from = Infinity, after = Infinity, beyond = NOTHING } = replay ?? {};
    replays.set(pattern, { asked: withSince(asked, since), from: Math.min(from, start), after, had, beyond, to: Infinity });
  }

  return {
    /** Expect a replay for a pattern. @param {string} pattern @param {Since} since */
    expect(pattern, since) {
      add(pattern, since, "offset" in since && !since.epoch ? since.offset : NOTHING);
    },

    /**
     * The handlers of a pattern miss everything after a position. Return what to ask for.
     * @param {string} pattern @param {Position} position @param {number} seen the offset up to which the client has seen everything of the present log, perhaps another one
     */
    miss(pattern, position, seen) {
      add(pattern, position, seen, replays.get(pattern)?.had);
      return /** @type {Replay} */ (replays.get(pattern)).asked;
    },

    /** The gateway no longer sends the replay of a pattern, which will be asked for again. @param {string} pattern */
    interrupt(pattern) {
      const replay = replays.get(pattern);
      if (!replay) return;
      replay.own = false;
      isMixed = true;
    },

    /**
     * Ask again for the unfinished replays, each from where it continues.
     * @param {(pattern: string, replays: Since[]) => void} ask @param {(pattern: string) => unknown} follows whether handlers have everything up to the position
     * @param {Position} [position] of the client
     */
    rewind(ask, follows, position) {
      isMixed = false;
      for (const [pattern, replay] of replays) {
        let asked = replay.asked.map((since) => ("offset" in since ? { ...position, ...since } : since));
        // `last` events may be fewer than have come since.
        if (position && follows(pattern)) asked = withSince(asked, position);
        if (asked.length > 1) isMixed = true;
        // An offset above the position may not exist in its epoch.
        Object.assign(replay, { asked, from: Math.min(replay.from, position?.offset ?? Infinity), after: Infinity, to: Infinity, own: false });
        ask(pattern, asked);
      }
    },

    /**
     * A request of a pattern is acknowledged. The last one has the newest offset of the log. Later events are not part of a replay.
     * @param {string} pattern @param {number} [to] @param {string} [epoch] if it is later than the client's @param {boolean} [own] whether nothing else comes before it
     * @param {number} [after] no event at or below it is a part of the request @param {boolean} [isLast] whether it was the last request
     */
    acknowledge(pattern, to = Infinity, epoch, own, after = NOTHING, isLast = true) {
      const replay = replays.get(pattern);
      if (!replay) return;
      after = replay.after = Math.min(replay.after, after);
      if (!isLast) return;
      Object.assign(replay, { from: Math.max(replay.from, after), to, epoch, own });
      // The last so many are others by the time that they are asked for again.
      if (after > NOTHING) replay.asked = [{ offset: after }];
    },

    /** The pattern has lost its last handler. @param {string} pattern */
    forget(pattern) {
      if (replays.delete(pattern)) isMixed = true;
    },

    /** The log has lost its end. Events seen above an offset do not count. @param {number} to */
    rollBack(to) {
      for (const replay of replays.values()) {
        replay.from = Math.min(replay.from, to);
        if (replay.after < Infinity) replay.after = Math.min(replay.after, to);
        replay.asked = replay.asked.map((since) => ("offset" in since && !since.epoch ? { offset: Math.max(0, Math.min(since.offset, to)) } : since));
        replay.beyond = Math.min(replay.beyond, to);
        if (!replay.epoch && replay.to < Infinity) replay.to = Math.min(replay.to, to);
        for (const offset of replay.had) if (offset > to) replay.had.delete(offset);
      }
    },

    /** The client has reached an offset. Replays below it are over. @param {number} offset @param {string} epoch @param {boolean} [isEvent] whether by a new event */
    pass(offset, epoch, isEvent) {
      // An acknowledgement may be of a later epoch.
      for (const [pattern, { to, epoch: of = epoch, own }] of replays) {
        if (((own && isEvent) || (offset > to && epoch === of)) && replays.delete(pattern)) over(pattern);
      }
    },

    /** Return whether the handlers of a pattern get an event for the first time. @param {string} pattern @param {number} offset */
    isFirst(pattern, offset) {
      const replay = replays.get(pattern);
      if (!replay || offset <= replay.from) return true;
      const { had } = replay;
      const isFirst = had.size < had.add(offset).size;
      const [oldest] = had;
      if (had.size > MAX_HAD && had.delete(oldest)) replay.beyond = Math.max(replay.beyond, oldest);
      if (!isFirst || offset > replay.beyond) return isFirst;
      replays.delete(pattern);
      givenUp(pattern);
      return false;
    },

    /**
     * Return whether the handlers of a pattern may see an event, which is new or may belong to the replay.
     * @param {string} pattern @param {number} offset @param {boolean} isNew
     */
    admit(pattern, offset, isNew) {
      const replay = replays.get(pattern);
      if (!replay || offset <= replay.from) return isNew;
      if (!this.isFirst(pattern, offset)) return false;
      if (isNew) return true;
      replay.own ||= !isMixed && replays.size < 2;
      if (replay.own) {
        replay.from = offset;
        replay.asked = [{ offset }];
      }
      return true;
    },
  };
}
