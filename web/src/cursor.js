/**
 * The cursor: where this client stands against the log, and which event is a duplicate. No I/O.
 *
 * In: positions from `welcome`, `cursor` and every event that is dispatched. Out: the position that the next CONNECT resumes
 * from, and `admit`, the patterns whose handlers may see an event. Rule: an event is new if and only if its offset is above the cursor. One at or
 * below it is a duplicate, unless it is marked `replayed` and belongs to a past that a pattern has asked for (pasts.js).
 *
 * The state is that of the last connection as long as its messages are dispatched, even if it has broken meanwhile.
 *
 * @import { EventMeta, Position, Since, Welcome } from "./protocol.js"
 * @typedef {"none" | "live" | "resuming" | "catching_up" | "announced"} Standing
 * @typedef {"resume" | "accept" | "announce" | "replay" | "follow" | "lose"} Step
 */
import { Machine } from "./machine.js";

/**
 * `none`: there is no position yet. `live`: events come as they are published. `resuming`: a CONNECT asks to go on from the
 * position. `catching_up`: the gateway reads on from the log. `announced`: the gateway stands in another log, or the log has
 * lost its end, and the gap that says so has not been dispatched. Until it has, the client resumes from the old position: if the
 * connection breaks in between, the next one must tell the loss again.
 *
 * `resume`: an attempt begins · `accept`: welcome, the gateway goes on from here · `announce`: welcome, it does not ·
 * `replay`: a new event, read from the log · `follow`: a live event, or word that everything was sent · `lose`: the log was
 * lost, another begins.
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
 * @param {ReturnType<typeof import("./pasts.js").createPasts>} pasts
 * @param {() => void} changed the state is another
 */
export function createCursor(from, pasts, changed) {
  const standing = new Machine(CURSOR, from ? "resuming" : "none");
  /** The position to resume from. */
  let { epoch, offset } = from ?? { epoch: "", offset: NOTHING };
  /** Everything up to here has been seen. */
  let seen = offset;
  /** The position in the other log. @type {Position} */
  let announced;

  /** @param {Step} step */
  function take(step) {
    if (standing.take(step)) changed();
  }

  /** @param {number} to */
  function move(to) {
    offset = seen = to;
  }

  /**
   * The log was lost: another begins, the announced one if there is, of which anything may come. Until something does,
   * resume from there.
   * @param {string} [of] epoch
   */
  function restart(of) {
    if (standing.is("announced")) ({ epoch, offset } = announced);
    epoch = of ?? epoch;
    seen = NOTHING;
    pasts.clear();
    take("lose");
  }

  /** Nothing at or below an offset is still to come; a new epoch starts anew. @param {number} to @param {string} [of] epoch */
  function skip(to, of = epoch) {
    if (standing.is("announced") || of !== epoch) restart(of);
    if (to >= seen) move(to);
  }

  /** @returns {Position | undefined} */
  const position = () => (standing.is("none") ? undefined : { epoch, offset });

  return {
    /** Return where the client stands against the log. */
    state: () => standing.state,

    /** Return the position to resume from. */
    position,

    /** Return the position that an application is told. */
    shown: () => (standing.is("announced") ? announced : position()),

    /** An attempt begins. Return the position that its CONNECT asks to resume from. */
    resume() {
      take("resume");
      return position();
    },

    /**
     * Take the gateway's welcome.
     *
     * Resumed: the events between our position and the gateway's follow. Not resumed, same log: so do those that the log
     * still has, behind a gap. Another log, or one that has lost its end: events start there, behind a gap. A new client
     * starts at the head.
     * @param {Welcome} welcome
     * @returns {boolean} false: none was due
     */
    welcome({ epoch: of, offset: at, resumed }) {
      if (!standing.can("accept")) return false;
      if (standing.is("none")) {
        epoch = of;
        move(at);
      }
      if (resumed || (of === epoch && at >= offset)) {
        take("accept");
        if (at <= offset) take("follow");
      } else {
        announced = { epoch: of, offset: at };
        take("announce");
      }
      return true;
    },

    /** Everything up to a position has been sent. @param {Position} position */
    follow({ epoch: of, offset: at }) {
      skip(at, of);
      take("follow");
    },

    skip,

    restart,

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
        pasts.pass();
        take(replayed ? "replay" : "follow");
      } else if (!replayed) return null;
      return (pattern) => pasts.admit(pattern, at, isNew);
    },
  };
}
