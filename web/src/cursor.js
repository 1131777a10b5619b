/**
 * The cursor: where this client stands against the log, and which event is a duplicate. No I/O.
 *
 * In: positions from `welcome`, `cursor` and every event that is dispatched. Out: the position that the next CONNECT resumes
 * from, and `admit`, who may see an event. Rule: an event is new if and only if its offset is above the cursor. One at or
 * below it is a duplicate, unless it is marked `replayed` and belongs to a past that a pattern has asked for (pasts.js).
 *
 * The state is that of the last connection as long as its messages are dispatched, even if it has broken meanwhile.
 *
 * @import { EventMeta, Position, Since, Welcome } from "./protocol.js"
 * @typedef {"none" | "live" | "resuming" | "catching_up" | "announced"} Standing
 * @typedef {"start" | "restore" | "resume" | "accept" | "announce" | "replay" | "follow" | "lose"} Step
 */
import { Machine } from "./machine.js";

/**
 * `none`: there is no position yet. `live`: events come as they are published. `resuming`: a CONNECT asks to go on from the
 * position. `catching_up`: the gateway reads on from the log. `announced`: the gateway stands in another log, or the log has
 * lost its end, and the gap that says so has not been dispatched. Until it has, the old position is what to resume from: a
 * connection that breaks in between must not take the loss for known.
 *
 * `start`: the first welcome · `restore`: an earlier page had a position · `resume`: an attempt begins · `accept`: welcome,
 * the gateway goes on from here · `announce`: welcome, it does not · `replay`: a new event, read from the log · `follow`: a
 * live event, or word that everything was sent · `lose`: the log was lost, another begins.
 * @type {Record<Standing, Partial<Record<Step, Standing>>>}
 */
export const CURSOR = {
  none: { start: "live", restore: "resuming" },
  live: { resume: "resuming", replay: "catching_up", follow: "live", lose: "live" },
  resuming: { resume: "resuming", accept: "catching_up", announce: "announced" },
  catching_up: { resume: "resuming", replay: "catching_up", follow: "live", lose: "catching_up" },
  announced: { resume: "resuming", lose: "catching_up" },
};

/** Below every offset: nothing of this log has been seen, `offset` is only where to resume. */
const NOTHING = -1;

/**
 * @param {ReturnType<typeof import("./pasts.js").createPasts>} pasts
 * @param {() => void} changed the state is another
 */
export function createCursor(pasts, changed) {
  const standing = new Machine(CURSOR, "none");
  let epoch = "";
  /** What to resume from. */
  let offset = 0;
  /** Everything up to here has been seen. */
  let seen = NOTHING;
  /** What was announced. @type {Position} */
  let announced;

  /** @param {Step} step */
  function take(step) {
    if (standing.take(step)) changed();
  }

  /** @param {Position} position */
  function move({ epoch: of, offset: at }) {
    epoch = of;
    offset = seen = at;
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

  /** @returns {Position | undefined} */
  const position = () => (standing.is("none") ? undefined : { epoch, offset });

  return {
    /** Return where the client stands against the log. */
    state: () => standing.state,

    /** Return what to resume from. */
    position,

    /** Return the position that an application is told. */
    shown: () => (standing.is("announced") ? announced : position()),

    /** Go on from where an earlier page stopped. @param {Position} from */
    restore(from) {
      move(from);
      take("restore");
    },

    /** An attempt begins. Return what its CONNECT asks to resume from. */
    resume() {
      if (standing.can("resume")) take("resume");
      return position();
    },

    /**
     * Take the gateway's welcome.
     *
     * Resumed: what lies between our position and its own is about to come. Not resumed, same log: so is the rest, behind a
     * gap. Another log, or one that has lost its end: it starts there, behind a gap. Only a new client starts at the head
     * for certain.
     * @param {Welcome} welcome
     * @returns {boolean} false: none was due
     */
    welcome({ epoch: of, offset: at, resumed }) {
      if (standing.can("start")) {
        move({ epoch: of, offset: at });
        take("start");
        return true;
      }
      if (!standing.can("accept")) return false;
      announced = { epoch: of, offset: at };
      const goesOn = resumed || (of === epoch && at >= offset);
      take(goesOn ? "accept" : "announce");
      if (goesOn && at <= offset) take("follow");
      return true;
    },

    /** Everything up to a position has been sent; a new epoch starts anew. @param {Position} position */
    follow({ epoch: of, offset: at }) {
      if (standing.is("announced") || of !== epoch) restart(of);
      if (at >= seen) move({ epoch, offset: at });
      take("follow");
    },

    /** Nothing at or below an offset is still to come. @param {number} to */
    skip(to) {
      if (standing.is("announced")) restart();
      if (to >= seen) move({ epoch, offset: to });
    },

    restart,

    /**
     * Count an event as seen, and return who may see it (null: nobody, it is a duplicate). Ask the returned function once
     * for each pattern that matches.
     * @param {EventMeta} meta
     * @returns {((pattern: string) => boolean) | null}
     */
    admit({ offset: at, replayed }) {
      if (at === undefined) return () => true;
      if (standing.is("announced")) restart();
      if (at > seen) {
        move({ epoch, offset: at });
        pasts.pass();
        take(replayed ? "replay" : "follow");
        return (pattern) => {
          pasts.note(pattern, at);
          return true;
        };
      }
      return replayed ? (pattern) => pasts.admit(pattern, at) : null;
    },
  };
}
