/**
 * The life of a connection: its states, and the one table of what leads from each to which. Pure, no I/O.
 *
 * `waiting` is a wait for a time, `draining` a wait for the page: an attempt begins only when every message that has arrived
 * was dispatched, so that the position it resumes from is exact and the messages of two connections never mix.
 * `welcoming` says that the gateway's welcome has arrived and has not had its turn yet. `moving` is up, and about to leave.
 *
 * @typedef {"idle" | "draining" | "connecting" | "welcoming" | "up" | "moving" | "waiting" | "refused" | "paused" | "closed"} Phase
 * @typedef {"attempt" | "defer" | "greeted" | "welcomed" | "move" | "lost" | "refuse" | "pause" | "close"} Step
 * @typedef {"connecting" | "up" | "waiting" | "refused" | "paused" | "closed"} ConnectionState what an application is told
 */

/**
 * State → step → next state. A step that a state does not name is not taken there.
 *
 * `attempt`: begin to connect · `defer`: it is time to, but messages wait · `greeted`: welcome has arrived · `welcomed`: it was
 * dispatched · `move`: the gateway is about to stop · `lost`: the connection or the attempt ended · `refuse`: for good.
 * @type {Record<Phase, Partial<Record<Step, Phase>>>}
 */
export const TRANSITIONS = {
  idle: { attempt: "connecting", close: "closed" },
  draining: { attempt: "connecting", pause: "paused", close: "closed" },
  connecting: { greeted: "welcoming", lost: "waiting", refuse: "refused", pause: "paused", close: "closed" },
  welcoming: { welcomed: "up", lost: "waiting", pause: "paused", close: "closed" },
  up: { move: "moving", lost: "waiting", pause: "paused", close: "closed" },
  moving: { lost: "waiting", pause: "paused", close: "closed" },
  waiting: { attempt: "connecting", defer: "draining", pause: "paused", close: "closed" },
  refused: { attempt: "connecting", defer: "draining", close: "closed" },
  paused: { attempt: "connecting", defer: "draining", close: "closed" },
  closed: {},
};

/** What an application is told of a state. @type {Record<Phase, ConnectionState>} */
const PUBLIC = {
  idle: "waiting",
  draining: "waiting",
  connecting: "connecting",
  welcoming: "connecting",
  up: "up",
  moving: "up",
  waiting: "waiting",
  refused: "refused",
  paused: "paused",
  closed: "closed",
};

export function createConnectionState() {
  /** @type {Phase} */
  let phase = "idle";

  return {
    /** Return whether a step is possible now. @param {Step} step */
    can: (step) => step in TRANSITIONS[phase],

    /**
     * Take a step.
     * @param {Step} step
     * @returns {Phase} the state that it left
     * @throws {Error} the table has no such step here: a fault of this package
     */
    take(step) {
      const was = phase;
      const next = TRANSITIONS[was][step];
      if (!next) throw new Error(`headgate: no step "${step}" from "${was}"`);
      phase = next;
      return was;
    },

    /** Return whether this is the present state. @param {...Phase} phases any of them */
    is: (...phases) => phases.includes(phase),

    /** Return what an application is told. */
    told: () => PUBLIC[phase],
  };
}
