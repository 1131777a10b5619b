/**
 * SubscriptionWatch: how a pattern's subscription stands, for a store: its state, and why the gateway refuses it.
 *
 * In: a pattern that has handlers, and lifecycle events of its gate. Out: calls of `changed`.
 *
 * @import { HeadgateError } from "../language/errors.js"
 * @import { State } from "../session/session.js"
 * @import { SubscriptionState } from "../subscriptions/subscription.js"
 * @import { Gate } from "../gate.js"
 */
import { Dispatcher } from "../index.js";

export class SubscriptionWatch {
  /** @type {SubscriptionState} */
  status;
  /** @type {HeadgateError | null} */
  error = null;
  #listener = new Dispatcher();
  #gate;
  #changed;

  /** @param {Gate} gate @param {string} pattern @param {() => void} changed */
  constructor(gate, pattern, changed) {
    this.#gate = gate;
    this.#changed = changed;
    this.status = gate.state.subscriptions[pattern] ?? "idle";
    this.#listener.listenTo(gate, {
      "state:change": (/** @type {State} */ { status, subscriptions }) => {
        this.status = subscriptions[pattern] ?? "idle";
        if (this.status !== "refused" && status !== "refused") this.error = null;
        changed();
      },
      "delivery:error": (/** @type {{ pattern?: string, error: HeadgateError }} */ { pattern: which, error }) => which === pattern && this.#refused(error),
      // Not one after which the client tries again.
      "connection:refused": (/** @type {HeadgateError} */ error) => gate.status === "refused" && this.#refused(error),
    });
    void this.#look(pattern);
  }

  /** Watch no more. */
  stop() {
    this.#listener.stopListening();
  }

  /** It may have been refused already. @param {string} pattern */
  async #look(pattern) {
    try {
      await this.#gate.subscribed(pattern);
    } catch (/** @type {any} */ error) {
      // `disconnected`: its handlers were removed, or the gate was closed. That is an end, not a fault.
      if (error.code !== "disconnected") this.#refused(error);
    }
  }

  /** @param {HeadgateError} error */
  #refused(error) {
    this.error = error;
    this.#changed();
  }
}
