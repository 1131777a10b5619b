/**
 * The states of a connection, and the steps from each to the next. Pure data.
 *
 * `waiting` waits for a time, `dispatching` for the page: an attempt begins only when every message that has arrived was
 * dispatched, so that the position it resumes from is exact and the messages of two connections never mix. `welcoming`: the
 * gateway's welcome has arrived and has not been dispatched yet. `moving` is up, and about to leave.
 *
 * @typedef {"idle" | "dispatching" | "connecting" | "welcoming" | "up" | "moving" | "waiting" | "refused" | "paused" | "closed"} Phase
 * @typedef {"attempt" | "defer" | "greet" | "welcome" | "move" | "lose" | "refuse" | "pause" | "close"} Step
 * @typedef {"connecting" | "up" | "waiting" | "refused" | "paused" | "closed"} ConnectionState as an application sees it
 */

/**
 * `attempt`: begin to connect · `defer`: it is time to connect, but messages wait · `greet`: the welcome has arrived ·
 * `welcome`: it was dispatched · `move`: the gateway is about to stop · `lose`: the connection or the attempt ended ·
 * `refuse`: for good.
 * @type {Record<Phase, Partial<Record<Step, Phase>>>}
 */
export const CONNECTION = {
  idle: { attempt: "connecting", close: "closed" },
  dispatching: { attempt: "connecting", pause: "paused", close: "closed" },
  connecting: { greet: "welcoming", lose: "waiting", refuse: "refused", pause: "paused", close: "closed" },
  welcoming: { welcome: "up", lose: "waiting", pause: "paused", close: "closed" },
  up: { move: "moving", lose: "waiting", pause: "paused", close: "closed" },
  moving: { lose: "waiting", pause: "paused", close: "closed" },
  waiting: { attempt: "connecting", defer: "dispatching", pause: "paused", close: "closed" },
  refused: { attempt: "connecting", defer: "dispatching", close: "closed" },
  paused: { attempt: "connecting", defer: "dispatching", close: "closed" },
  closed: {},
};

/** The state that an application sees, where it has another name. @type {Partial<Record<Phase, ConnectionState>>} */
const PUBLIC = { idle: "waiting", dispatching: "waiting", welcoming: "connecting", moving: "up" };

/** Return the state that an application sees. @param {Phase} phase @returns {ConnectionState} */
export function publicState(phase) {
  return PUBLIC[phase] ?? /** @type {ConnectionState} */ (phase);
}
