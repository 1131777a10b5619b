/**
 * The states of a connection, the steps from each to the next, and the status that an application sees. Pure data.
 *
 * `waiting` waits for a time, and `dispatching` for the page. An attempt begins only when every received message was dispatched, so that it resumes from
 * an exact position and the messages of two connections never mix. In `welcoming` and `returning` the gateway's welcome has arrived and has not been
 * dispatched yet; a returning client has a position.
 *
 * @typedef {"dispatching" | "welcoming" | "returning" | Status} Phase
 * @typedef {"idle" | "connecting" | "resuming" | "live" | "catching_up" | "moving" | "waiting" | "paused" | "refused" | "closed"} Status
 * @typedef {"attempt" | "defer" | "resume" | "greet" | "join" | "return" | "replay" | "follow" | "move" | "lose" | "refuse" | "pause" | "close"} Step
 * @typedef {"connecting" | "up" | "waiting" | "refused" | "paused" | "closed"} ConnectionState the coarser words of `gate.state`; `up`: requests can be sent
 */

/** Steps from each phase except `closed`. */
const END = /** @type {const} */ ({ close: "closed" });
/** Steps from each phase begun and not refused. */
const LEAVE = /** @type {const} */ ({ pause: "paused", ...END });
/** Steps from each phase with a connection or an attempt. */
const DOWN = /** @type {const} */ ({ lose: "waiting", ...LEAVE });
/** Steps from each phase without one. */
const UP = /** @type {const} */ ({ attempt: "connecting", defer: "dispatching" });

/**
 * `attempt`: begin to connect · `defer`: it is time to connect, but messages wait · `resume`: CONNECT asks to continue from a position · `greet`: the
 * welcome has arrived · `join`: it was dispatched, and there is nothing to catch up on · `return`: it was dispatched, and there may be something ·
 * `replay`: a new event came from the log · `follow`: the client has everything again · `move`: the gateway asks the client to reconnect · `lose`: the
 * connection or the attempt has ended · `refuse`: the client gives up.
 * @type {Record<Phase, Partial<Record<Step, Phase>>>}
 */
export const CONNECTION = {
  idle: { attempt: "connecting", ...END },
  dispatching: { attempt: "connecting", ...LEAVE },
  connecting: { resume: "resuming", greet: "welcoming", refuse: "refused", ...DOWN },
  resuming: { greet: "returning", refuse: "refused", ...DOWN },
  welcoming: { join: "live", ...DOWN },
  returning: { join: "live", return: "catching_up", ...DOWN },
  live: { replay: "catching_up", move: "moving", ...DOWN },
  catching_up: { follow: "live", move: "moving", ...DOWN },
  moving: DOWN,
  waiting: { ...UP, ...LEAVE },
  refused: { ...UP, ...END },
  paused: { ...UP, ...END },
  closed: {},
};

/** The status of phases whose name differs from it. @type {Partial<Record<Phase, Status>>} */
const STATUS = { dispatching: "waiting", welcoming: "connecting", returning: "resuming" };

/** The coarser words of `gate.state`, if they differ from the status. @type {Partial<Record<Phase, ConnectionState>>} */
const COARSE = { idle: "waiting", resuming: "connecting", live: "up", catching_up: "up", moving: "up" };

/** Return the status that an application sees. @param {Phase} phase @returns {Status} */
export function statusOf(phase) {
  return STATUS[phase] ?? /** @type {Status} */ (phase);
}

/** Return the coarser word. @param {Status} status @returns {ConnectionState} */
export function coarseOf(status) {
  return COARSE[status] ?? /** @type {ConnectionState} */ (status);
}
