/**
 * The cursor: the position of this client in the log, and which event is a duplicate. No I/O.
 *
 * In: positions from `welcome`, `cursor` and every dispatched event. Out: the position from which the next CONNECT resumes, and `admit`, which says which
 * patterns may see an event. An event is new if and only if its offset is above the cursor. One at or below it is a duplicate, unless it is marked
 * `replayed` and belongs to a replay that a pattern has asked for (replays.js).
 *
 * A position is an epoch and an offset. Offsets continue when the log begins another epoch, so a new epoch alone only renames the position. If the log has
 * lost its end, a gap moves the position back to the last common event, and everything above it is new.
 *
 * While messages of a connection are dispatched, the state is that of this connection, even if it has broken in the meantime.
 *
 * @import { EventMeta, Position, Since, Welcome } from "../language/protocol.js"
 * @typedef {"none" | "live" | "resuming" | "catching_up" | "announced"} Standing
 * @typedef {"resume" | "accept" | "announce" | "replay" | "follow" | "lose"} Step
 */
import { Machine } from "../base/machine.js";

/**
 * `none`: there is no position yet. `live`: events come as they are published. `resuming`: a CONNECT asks to continue from the position. `catching_up`: the
 * gateway reads missed events from the log. `announced`: the log is another one or has lost its end, and the gap that reports this has not been dispatched.
 * Until then the client resumes from the old position. If the connection breaks in between, the next one must report the loss again.
 *
 * `resume`: an attempt begins · `accept`: a welcome, and the gateway continues from here · `announce`: a welcome, and it does not · `replay`: a new event,
 * read from the log · `follow`: a live event, or the report that everything was sent · `lose`: a gap, because the log or its end was lost.
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
 * @param {Position | undefined} from the position where an earlier page stopped
 * @param {ReturnType<typeof import("./replays.js").createReplays>} replays
 */
export function createCursor(from, replays) {
  const standing = new Machine(CURSOR, from ? "resuming" : "none", (was) => standing.is(was) || changed(standing.is("live")));
  /** The position to resume from. */
  let { epoch, offset } = from ?? { epoch: "", offset: NOTHING };
  /** Everything up to this offset has been seen. */
  let seen = offset;
  /** The position in the other log. @type {Position} */
  let announced;
  let losses = 0;
  let changed = (/** @type {boolean} */ _isLive) => {};

  /** @param {number} to */
  function move(to) {
    offset = seen = to;
  }

  /** Every event above an offset is new again, although some of them were seen. @param {number} to */
  function lose(to) {
    seen = Math.min(seen, to);
    losses++;
    replays.rollBack(to);
    standing.take("lose");
  }

  /** The log was lost, and any event of the new one may come. Until one does, resume from the announced position. */
  function restart() {
    if (standing.is("announced")) ({ epoch, offset } = announced);
    lose(NOTHING);
  }

  /** Nothing at or below an offset is still to come. The log may continue in another epoch. @param {number} to @param {string} [of] epoch */
  function skip(to, of = epoch) {
    if (standing.is("announced")) restart();
    epoch = of;
    if (to >= seen) move(to);
  }

  /** @returns {Position | undefined} */
  const position = () => (standing.is("none") ? undefined : { epoch, offset });

  return {
    /** Set the function to call when the state has changed, with whether it is live. @param {(isLive: boolean) => void} act */
    watch(act) {
      changed = act;
    },

    /** Return where the client stands in the log. */
    state: () => standing.state,

    /** Return the position to resume from. */
    position,

    /** Return the offset up to which everything of the present log has been seen. */
    seen: () => seen,

    /** Return how often the log or its end was lost. The answer to a request from before a loss may hold lost events. */
    losses: () => losses,

    /** An attempt begins. Return the position from which its CONNECT asks to resume. */
    resume() {
      standing.take("resume");
      return position();
    },

    /**
     * Take the gateway's welcome.
     *
     * If the gateway continues from our position, in the newest epoch, the rest of the log follows, after a gap if some of it is gone. If it continues from a
     * lower position or in another log, a gap that moves us there comes first. A new client starts at the head.
     * @param {Welcome} welcome
     * @returns {boolean} false: no welcome was due
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

    /** The log has lost its end above an offset, and continues in another epoch. @param {number} to @param {string} of epoch */
    rollBack(to, of) {
      epoch = of;
      offset = Math.min(offset, to);
      lose(to);
    },

    /**
     * Count an event as seen. Return a function that says whether the handlers of a pattern may see it, to be called once for each matching pattern; null:
     * the event is a duplicate.
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
