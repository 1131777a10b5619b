/**
 * A subscription: one pattern, from its first handler to the gateway's last acknowledgement. Pure state, no I/O.
 *
 * In: the handlers' wishes, the gateway's answers, the end of a connection. Out: the request that brings the gateway into step. Only one is in flight, so a
 * quick `off` and `on` costs at most one. Nothing is sent if nothing has changed.
 *
 * @import { HeadgateError } from "../language/errors.js"
 * @import { Overflow, Since, SubscribeRequest } from "../language/protocol.js"
 * @typedef {"wanted" | "requested" | "active" | "changed" | "releasing" | "suspended" | "waiting" | "retrying" | "refused" | "idle"} SubscriptionState
 * @typedef {"acquire" | "request" | "acknowledge" | "fail" | "wait" | "refuse" | "change" | "restore" | "unsubscribe" | "end" | "disconnect" | "retry" | "release"} Step
 * @typedef {{ pattern: string, error: HeadgateError }} Refusal
 * @typedef {{ overflow?: Overflow, repair?: boolean, since?: Since }} Wishes of a handler
 * @typedef {{ overflow?: Overflow, since?: Since }} Sent overflow: the policy; undefined: it was to be unsubscribed
 */
import { Machine } from "../base/machine.js";
import { OVERFLOW, SUBSCRIBE, UNSUBSCRIBE } from "../language/protocol.js";
import { withSince } from "../language/since.js";
import { isFull } from "./places.js";

/**
 * `wanted`: the gateway does not have it. `changed`: it is active, but the handlers want it otherwise now. `suspended`: the connection is gone, and the
 * CONNECT that resumes carries it. `releasing`: it is being unsubscribed. `waiting`: a limit of the gateway leaves no place for it now (places.js).
 * `retrying`: the gateway refused or ended it for a passing reason, and is asked again after a pause (requests.js). `idle`: there is none.
 *
 * `fail`: the gateway refused for a passing reason · `restore`: the handlers want the active policy again · `end`: the token no longer grants it · `retry`:
 * request it again · `release`: there is neither a handler nor anything to unsubscribe.
 * @type {Record<SubscriptionState, Partial<Record<Step, SubscriptionState>>>}
 */
export const SUBSCRIPTION = {
  idle: { acquire: "wanted", disconnect: "idle" },
  wanted: { request: "requested", wait: "waiting", disconnect: "wanted", release: "idle" },
  // An end that comes before the answer may be older or newer than it, so the gateway is asked once more.
  requested: { acknowledge: "active", fail: "retrying", wait: "waiting", refuse: "refused", end: "wanted", disconnect: "suspended" },
  active: { change: "changed", fail: "retrying", end: "refused", disconnect: "suspended" },
  changed: { restore: "active", request: "requested", unsubscribe: "releasing", fail: "retrying", end: "refused", disconnect: "suspended" },
  // A refusal to unsubscribe means that there is nothing to unsubscribe. Without an answer it may still be active.
  releasing: { acknowledge: "wanted", refuse: "wanted", fail: "changed", disconnect: "wanted" },
  // The notice of an end may be dispatched when the connection is gone.
  suspended: { request: "requested", wait: "waiting", fail: "retrying", disconnect: "suspended", release: "idle" },
  waiting: { retry: "wanted", disconnect: "wanted", release: "idle" },
  retrying: { retry: "wanted", disconnect: "wanted", release: "idle" },
  refused: { retry: "wanted", disconnect: "wanted", release: "idle" },
};

/** @extends {Machine<SubscriptionState, Step>} */
export class Subscription extends Machine {
  /** The wanted policy; undefined: no handler is left. @type {Overflow | undefined} */
  overflow;
  /** Whether a handler wants gaps repaired. */
  repair = false;
  /** Past events still to be requested. @type {Since[]} */
  replays = [];
  /** The latest request. @type {Sent} */
  sent = {};
  /** Why it was refused. @type {HeadgateError | undefined} */
  error;
  /** Refusals in a row for a passing reason. */
  failures = 0;
  /** Whether its handlers have everything up to the client's position. */
  followed = false;
  /** The number of handlers that want each policy. */
  #handlers = { catch_up: 0, latest: 0, drop: 0 };
  #repairing = 0;

  /** @param {string} pattern @param {(subscription: Subscription, before: SubscriptionState) => void} moved called after each step */
  constructor(pattern, moved) {
    super(SUBSCRIPTION, "idle", (before) => moved(this, before));
    this.pattern = pattern;
  }

  /** A handler comes. A refused subscription is requested again. @param {Wishes} wishes */
  join(wishes) {
    this.#count(wishes, 1);
    if (wishes.since) this.replays = withSince(this.replays, wishes.since);
    if (this.is("refused")) this.take("retry");
    this.#compare();
  }

  /** A handler has left. Return the policy that the others want, if there are others. @param {Wishes} wishes that it had */
  leave(wishes) {
    this.#count(wishes, -1);
    if (!this.overflow) this.replays = [];
    this.#compare();
    return this.overflow;
  }

  /**
   * Return the request that brings the gateway into step, and count it as in flight.
   * @returns {[name: string, body: SubscribeRequest]}
   */
  request() {
    const { pattern, overflow } = this;
    const [since] = this.replays;
    this.followed = Boolean(overflow) && this.is("changed", "suspended");
    this.take(overflow ? "request" : "unsubscribe");
    this.sent = { overflow, since };
    return [overflow ? SUBSCRIBE : UNSUBSCRIBE, { pattern, overflow: overflow === OVERFLOW[0] ? undefined : overflow, since }];
  }

  /**
   * Take the answer to a request. The answer to an older request does not count.
   * @param {HeadgateError} [error]
   * @param {Sent} [sent]
   * @returns {Refusal | undefined} a refusal to report to the application
   */
  answered(error, sent = this.sent) {
    if (sent !== this.sent || !this.can("acknowledge")) return;
    if (error && this.can("wait") && isFull({ ...error.parts, code: error.code })) return this.wait(error);
    if (error) this.take(this.#refusing(error));
    else {
      this.failures = 0;
      this.followed = Boolean(sent.overflow);
      this.take("acknowledge");
      if (this.replays[0] === sent.since) this.replays.shift();
    }
    return this.#refusal(error);
  }

  /** The gateway has no place for it now. @param {HeadgateError} error @returns {Refusal | undefined} to report, once until it is active */
  wait(error) {
    this.take("wait");
    return this.error?.code === error.code ? undefined : this.#refusal(error);
  }

  /** The gateway has ended it. @param {HeadgateError} error @returns {Refusal | undefined} to report */
  end(error) {
    if (!this.is("releasing") && this.offer(this.#refusing(error, "end"))) return this.#refusal(error);
  }

  /** Return the step of a refusal, and count one for a passing reason. @param {HeadgateError} error @param {Step} final @returns {Step} */
  #refusing({ retry }, final = "refuse") {
    if (retry) this.failures++;
    return retry ? "fail" : final;
  }

  /** The connection is gone, and with it every subscription and request. */
  disconnect() {
    this.take("disconnect");
    this.#compare();
  }

  /** The strongest policy counts, so that a handler that may lose events does not make another one lose them. @param {Wishes} wishes @param {1 | -1} by */
  #count({ overflow = OVERFLOW[0], repair = true }, by) {
    this.#handlers[overflow] += by;
    if (repair) this.#repairing += by;
    this.overflow = OVERFLOW.find((each) => this.#handlers[each]);
    this.repair = this.#repairing > 0;
  }

  /** @param {HeadgateError} [error] */
  #refusal(error) {
    this.error = error;
    this.#compare();
    if (error && this.is("refused", "waiting")) return { pattern: this.pattern, error };
  }

  /** Compare the wishes with the latest request. */
  #compare() {
    const { overflow } = this;
    this.offer(overflow ? "acquire" : "release");
    this.offer(overflow && overflow === this.sent.overflow && !this.replays.length ? "restore" : "change");
  }
}
