/**
 * SubscriptionWatch: how a pattern's subscription stands, for a store: its state, and why the gateway refuses it.
 *
 * In: a pattern that has handlers, and lifecycle events of its gate. Out: calls of `changed`.
 *
 * @import { HeadgateError } from "../language/errors.js"
 * @import { SubscriptionState } from "../subscriptions/subscription.js"
 * @import { Gate } from "../gate.js"
 */
import { Dispatcher } from "../index.js";

export class SubscriptionWatch {
  /** @type {SubscriptionState} */
  status = "idle";
  /** @type {HeadgateError | null} */
  error = null;
  #listener = new Dispatcher();

  /** @param {Gate} gate @param {string} pattern @param {() => void} changed */
  constructor(gate, pattern, changed) {
    const look = () => Object.assign(this, gate._standing(pattern));
    const listen = () => {
      look();
      changed();
    };
    this.#listener.listenTo(gate, { "status:change": listen, [`subscription:${pattern}`]: listen });
    look();
  }

  /** Watch no more. */
  stop() {
    this.#listener.stopListening();
  }
}
