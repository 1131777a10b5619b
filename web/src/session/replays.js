/**
 * Replays: the parts of the log that subscriptions have asked for (`since`) or miss, each until it is over. No I/O.
 *
 * In: `expect` when a handler asks, `miss` when a subscription that was active is not for now, acknowledgements, the offsets of events.
 * Out: which replayed events a pattern's handlers may see, and where a replay goes on after a reconnection. The gateway sends a replay in
 * order and then everything later, so the first new event above the acknowledgement ends it.
 *
 * A replayed event may be of another pattern's replay that this pattern matches as well. Handlers see that too, and no such event says how
 * far their own replay is. So all that came is noted until it is over, and it is asked for again from its start. Where the event can only be
 * its own, because the welcome has acknowledged it or no other replay is on its way, everything before it has come too: the replay goes on from there.
 *
 * Handlers of one pattern may ask for several. The gateway reads them in one go, from the earliest place on: it goes back to the start of
 * a later one, if that lies before. What came before a handler asked may come once more.
 *
 * @import { Position, Since } from "../language/protocol.js"
 * @typedef {{ asked: Since[], from: number, had: Set<number>, beyond: number, to: number, epoch?: string, own?: boolean }} Replay `asked`: all that
 *   is not over; `from`: no event at or below that offset is a part of it; `had`: offsets above that came, without those up to `beyond` where they are too many;
 *   `to`, `epoch`: of the acknowledgement; `own`: the gateway is known to send it
 */
import { withSince } from "../language/since.js";

/** Events noted of one replay. */
const MAX_HAD = 10_000;
/** Below every offset: nothing of it has come. */
const NOTHING = -1;

/**
 * @param {(pattern: string) => void} givenUp called when too many events have come to know which are missing
 * @param {(pattern: string) => void} [over] called when a pattern's handlers have everything up to the client's position
 */
export function createReplays(givenUp, over = () => {}) {
  /** @type {Map<string, Replay>} by pattern */
  const replays = new Map();
  /** Whether events of an abandoned replay may be on their way. */
  let isMixed = false;

  /**
   * @param {string} pattern @param {Since} since @param {number} start no event at or below it is a part of that
   * @param {Set<number>} [had]
   */
  function add(pattern, since, start, had = new Set()) {
    const replay = replays.get(pattern);
    if (replay) isMixed = true;
    const { asked = [], from = Infinity, beyond = NOTHING } = replay ?? {};
    replays.set(pattern, { asked: withSince(asked, since), from: Math.min(from, start), had, beyond, to: Infinity });
  }

  return {
    /** Expect a replay for a pattern. @param {string} pattern @param {Since} since */
    expect(pattern, since) {
      add(pattern, since, "offset" in since && !since.epoch ? since.offset : NOTHING);
    },

    /**
     * A pattern's handlers miss everything after a position. Return what to ask for.
     * @param {string} pattern @param {Position} position @param {number} seen the client has seen everything up to that offset of the present log, which may be another one
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
     * Ask again for the unfinished replays, each from where it continues: after an offset that the client knows.
     * @param {(pattern: string, replays: Since[]) => void} ask @param {(pattern: string) => unknown} follows whether handlers have had what came up to the position
     * @param {Position} [position] of the client
     */
    rewind(ask, follows, position) {
      isMixed = false;
      for (const [pattern, replay] of replays) {
        let asked = replay.asked.map((since) => ("offset" in since ? { ...position, ...since } : since));
        // The last so many events need not be all that has come since.
        if (position && follows(pattern)) asked = withSince(asked, position);
        if (asked.length > 1) isMixed = true;
        // An offset above the position may be one that its epoch never had.
        Object.assign(replay, { asked, from: Math.min(replay.from, position?.offset ?? Infinity), to: Infinity, own: false });
        ask(pattern, asked);
      }
    },

    /**
     * A pattern is acknowledged, with the newest offset of the log: later events are not part of a replay.
     * @param {string} pattern @param {number} [to] @param {string} [epoch] if that is later than the client's @param {boolean} [own] nothing else comes before it
     */
    acknowledge(pattern, to = Infinity, epoch, own) {
      const replay = replays.get(pattern);
      if (replay) Object.assign(replay, { to, epoch, own });
    },

    /** The pattern has no handlers any more. @param {string} pattern */
    forget(pattern) {
      if (replays.delete(pattern)) isMixed = true;
    },

    /** The log has lost its end: what was seen of it above an offset counts for nothing. @param {number} to */
    rollBack(to) {
      for (const replay of replays.values()) {
        replay.from = Math.min(replay.from, to);
        replay.asked = replay.asked.map((since) => ("offset" in since && !since.epoch ? { offset: Math.max(0, Math.min(since.offset, to)) } : since));
        replay.beyond = Math.min(replay.beyond, to);
        if (!replay.epoch && replay.to < Infinity) replay.to = Math.min(replay.to, to);
        for (const offset of replay.had) if (offset > to) replay.had.delete(offset);
      }
    },

    /** The client has come to an offset: each replay below it is over. @param {number} offset @param {string} epoch @param {boolean} [isEvent] a new one */
    pass(offset, epoch, isEvent) {
      // An acknowledgement may be of a later epoch.
      for (const [pattern, { to, epoch: of = epoch, own }] of replays) {
        if (((own && isEvent) || (offset > to && epoch === of)) && replays.delete(pattern)) over(pattern);
      }
    },

    /** Return whether an event comes to the handlers of a pattern for the first time, if that is known of it. @param {string} pattern @param {number} offset */
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
     * Return whether the handlers of a pattern may see an event: a new one, or an old one if it may belong to the replay.
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
      } else replay.asked = replay.asked.map((/** @type {any} */ since) => (since.epoch || since.offset < offset ? since : { offset: offset - 1 }));
      return true;
    },
  };
}
