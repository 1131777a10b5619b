/**
 * The cursor: the position of this client in the log, and which event is a duplicate. No I/O.
 *
 * In: positions from `welcome`, `cursor` and every dispatched event. Out: the position that the next CONNECT resumes
 * from, and `admit`, the patterns whose handlers may see an event. Rule: an event is new if and only if its offset is above the cursor. One at or
 * below it is a duplicate, unless it is marked `replayed` and belongs to a replay that a pattern has asked for (replays.js).
 *
 * A position is an epoch and an offset. Offsets go on when the log begins another epoch, so another epoch alone renames the
 * position. If the log has lost its end, a gap moves the position back to where the lines part, and what comes above it is new.
 *
 * The state is that of the last connection as long as its messages are dispatched, even if it has broken since.
 *
 * @import { EventMeta, Position, Since, Welcome } from "../language/protocol.js"
 * @typedef {"none" | "live" | "resuming" | "catching_up" | "announced"} Standing
 * @typedef {"resume" | "accept" | "announce" | "replay" | "follow" | "lose"} Step
 */
import { Machine } from "../base/machine.js";

/**
 * `none`: there is no position yet. `live`: events come as they are published. `resuming`: a CONNECT asks to go on from the
 * position. `catching_up`: the gateway reads on from the log. `announced`: the gateway stands in another log, or the log has
 * lost its end, and the gap about it has not been dispatched. Until it has, the client resumes from the old position: if the
 * connection breaks in between, the next one must report the loss again.
 *
 * `resume`: an attempt begins · `accept`: welcome, the gateway goes on from here · `announce`: welcome, it does not ·
 * `replay`: a new event, read from the log · `follow`: a live event, or word that everything was sent · `lose`: a gap, the log
 * or its end was lost.
 * @type {Record<Standing, Partial<Record<Step, Standing>>>}
 */
export const CURSOR = {
  none: { resume: "none", accept: "live" },
  live: { resume: "resuming", replay: "catching_up", follow: "live", lose: "live" },
  resuming: { resume: "resuming", accept: "catching_up", announce: "announced" },
  catching_up: { resume: "resuming", replay: "catching_up", follow: "live", lose: "catching_up" },
  announced: { resume: "resuming", lose: "catching_up" },
};

/** Below every offset: nothing of this log has been seen. */
const NOTHING = -1;

/**
 * @param {Position | undefined} from where an earlier page stopped
 * @param {ReturnType<typeof import("./replays.js").createReplays>} replays
 */
export function createCursor(from, replays) {
  const standing = new Machine(CURSOR, from ? "resuming" : "none", (was) => standing.is(was) || changed(standing.is("live")));
  /** The position to resume from. */
  let { epoch, offset } = from ?? { epoch: "", offset: NOTHING };
  /** Everything up to here has been seen. */
  let seen = offset;
  /** The position in the other log. @type {Position} */
  let announced;
  let losses = 0;
  let changed = (/** @type {boolean} */ _isLive) => {};

  /** @param {number} to */
  function move(to) {
    offset = seen = to;
  }

  /** Every event above an offset is new again, though some of them were seen. @param {number} to */
  function lose(to) {
    seen = Math.min(seen, to);
    losses++;
    replays.rollBack(to);
    standing.take("lose");
  }

  /** The log was lost: another begins, of which anything may come. Until something does, resume from where it was announced. */
  function restart() {
    if (standing.is("announced")) ({ epoch, offset } = announced);
    lose(NOTHING);
  }

  /** Nothing at or below an offset is still to come; another epoch goes on with the log. @param {number} to @param {string} [of] epoch */
  function skip(to, of = epoch) {
    if (standing.is("announced")) restart();
    epoch = of;
    if (to >= seen) move(to);
  }

  /** @returns {Position | undefined} */
  const position = () => (standing.is("none") ? undefined : { epoch, offset });

  return {
    /** Name what is called when the state has changed, with whether it is live. @param {(isLive: boolean) => void} act */
    watch(act) {
      changed = act;
    },

    /** Return where the client stands against the log. */
    state: () => standing.state,

    /** Return the position to resume from. */
    position,

    /** Return the offset up to which everything of the present log has been seen. */
    seen: () => seen,

    /** Return how often the log or its end was lost. An answer to an earlier request may hold lost events. */
    losses: () => losses,

    /** An attempt begins. Return the position that its CONNECT asks to resume from. */
    resume() {
      standing.take("resume");
      return position();
    },

    /**
     * Take the gateway's welcome.
     *
     * The gateway goes on from our position, under the newest epoch: what the log still has follows, after a gap if that is
     * not all. From a lower one, or in another log: after a gap that moves us there. A new client starts at the head.
     * @param {Welcome} welcome
     * @returns {boolean} false: none was due
     */
    welcome({ epoch: of, offset: at, resumed, from }) {
      if (!standing.can("accept")) return false;
      if (standing.is("none")) {
        from = { epoch: of, offset: at };
        move(at);
      }
      if (resumed || (from && from.offset >= offset)) {
        epoch = from?.epoch ?? epoch;
        standing.take("accept");
        if (at <= offset) standing.take("follow");
      } else {
        announced = { epoch: of, offset: at };
        standing.take("announce");
      }
      return true;
    },

    /** Everything up to a position has been sent. @param {Position} position */
    follow({ epoch: of, offset: at }) {
      skip(at, of);
      replays.pass(at, of);
      standing.take("follow");
    },

    skip,

    restart,

    /** The log has lost its end above an offset, and goes on in another epoch. @param {number} to @param {string} of epoch */
    rollBack(to, of) {
      epoch = of;
      offset = Math.min(offset, to);
      lose(to);
    },

    /**
     * Count an event as seen. Return which patterns' handlers may see it, to be called once for each pattern that matches;
     * null: it is a duplicate.
     * @param {EventMeta} meta
     * @returns {((pattern: string) => boolean) | null}
     */
    admit({ offset: at, replayed }) {
      if (at === undefined) return () => true;
      if (standing.is("announced")) restart();
      const isNew = at > seen;
      if (isNew) {
        move(at);
        replays.pass(at, epoch, true);
        standing.take(replayed ? "replay" : "follow");
      } else if (!replayed) return null;
      return (pattern) => replays.admit(pattern, at, isNew);
    },
  };
}
