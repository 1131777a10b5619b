/**
 * Requests: those that bring the gateway's subscriptions into step with the handlers, within the budget.
 *
 * In: which subscriptions have a request due, the gateway's limits. Out: requests, one in flight for each pattern; refusals
 * for the application. A request that was refused for a passing reason is made again later.
 *
 * @import { HeadgateError } from "../language/errors.js"
 * @import { Limits } from "../language/protocol.js"
 * @import { Subscription } from "./subscription.js"
 *
 * @typedef {object} RequestsOwner
 * @property {ReturnType<typeof import("./subscriptions.js").createSubscriptions>} subscriptions
 * @property {(pattern: string, offset?: number) => void} acknowledged with the newest offset of the log; none: the pattern was given up
 * @property {{ isUp: () => boolean, request: (name: string, body: object) => Promise<any> }} connection
 * @property {(name: string, body: any) => void} tell a lifecycle event
 * @property {() => void} changed
 */
import { createBudget } from "../base/budget.js";
import { startTimer } from "../base/timer.js";

/** Time before a request that was refused for a passing reason is made again. */
const RETRY_MS = 2000;

/** @param {RequestsOwner} owner */
export function createRequests({ subscriptions, connection, acknowledged, tell, changed }) {
  let waitMs = createBudget({});
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;

  /** @param {number} delayMs */
  function after(delayMs) {
    timer ??= startTimer(() => {
      timer = undefined;
      changed();
    }, delayMs);
  }

  /** @param {Subscription} subscription */
  function send(subscription) {
    const request = subscription.request();
    const { sent } = subscription;
    const answered = (/** @type {HeadgateError | undefined} */ error) => {
      tell("delivery:error", subscription.answered(error, sent));
      if (error?.retry && connection.isUp()) after(RETRY_MS * (0.5 + Math.random()));
      changed();
    };
    connection.request(...request).then((answer) => {
      acknowledged(subscription.pattern, answer?.offset);
      answered(undefined);
    }, answered);
  }

  return {
    /** The gateway has named its limits. @param {Limits} limits */
    limit(limits) {
      waitMs = createBudget(limits);
    },

    /** Take a request out of the budget and return 0; else how long to wait for one. */
    waitMs: () => waitMs(),

    /** Send the requests that are due, as far as the budget goes. */
    send() {
      const due = () => (connection.isUp() && !timer ? subscriptions.due((refusal) => tell("delivery:error", refusal)) : undefined);
      for (let next = due(); next; next = due()) {
        const delayMs = waitMs();
        if (delayMs) after(delayMs);
        else send(next);
      }
    },

    /** The connection is gone; the next one sends its own. */
    clear() {
      clearTimeout(timer);
      timer = undefined;
    },
  };
}
