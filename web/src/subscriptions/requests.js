/**
 * Requests within the budget: those that bring the gateway's subscriptions into step with the handlers, and turns for requests of the application.
 *
 * In: subscriptions with a due request, the gateway's limits. Out: requests, one in flight for each pattern; refusals for the application. A subscription
 * that was refused or ended for a passing reason is requested again after a growing pause, separate for each, so that it delays no other.
 *
 * @import { Limits } from "../language/protocol.js"
 * @import { Subscription } from "./subscription.js"
 *
 * @typedef {object} RequestsOwner
 * @property {ReturnType<typeof import("./subscriptions.js").createSubscriptions>} subscriptions
 * @property {(answer: any, offset?: number, epoch?: string) => void} acknowledged with the newest position of the log
 * @property {{ isUp: () => boolean, request: (name: string, body: object) => Promise<any> }} connection
 * @property {(name: string, body: any) => void} tell a lifecycle event
 * @property {() => void} changed
 */
import { APPLICATION_SHARE, createBudget } from "../base/budget.js";
import { delayAfterMs, reconnectDelayMs } from "../base/backoff.js";
import { startTimer } from "../base/timer.js";
import { HeadgateError } from "../language/errors.js";

/** @param {RequestsOwner} owner */
export function createRequests({ subscriptions, connection, acknowledged, tell, changed }) {
  let waitMs = createBudget({});
  let turnMs = createBudget({});
  /** @type {Limits} */
  let limits = {};
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  /** The timers of subscriptions to request again. @type {Map<Subscription, ReturnType<typeof setTimeout>>} */
  const pauses = new Map();
  /** Requests of the application that wait for their turns. @type {Map<ReturnType<typeof setTimeout>, (nothing?: any) => void>} */
  const turns = new Map();

  /** @param {number} delayMs */
  function after(delayMs) {
    timer ??= startTimer(() => {
      timer = undefined;
      changed();
    }, delayMs);
  }

  /** Begin the pauses of subscriptions to request again, and end the others. */
  function pause() {
    for (const [each, pausing] of pauses) {
      if (subscriptions.retrying.has(each)) continue;
      clearTimeout(pausing);
      pauses.delete(each);
    }
    for (const each of subscriptions.retrying) {
      if (pauses.has(each)) continue;
      const again = () => {
        pauses.delete(each);
        each.offer("retry");
        changed();
      };
      const delayMs = reconnectDelayMs(each.failures - 1);
      pauses.set(each, startTimer(again, delayAfterMs(each.error?.parts?.retryAfterS, delayMs)));
    }
  }

  /** @param {Subscription} subscription */
  function send(subscription) {
    const request = subscription.request();
    const { sent } = subscription;
    const answered = (/** @type {HeadgateError | undefined} */ error) => {
      tell("delivery:error", subscription.answered(error, sent));
      changed();
    };
    connection.request(...request).then((answer) => {
      // Not if the subscription has ended since.
      const isActive = subscription.is("requested") && subscription.sent === sent;
      answered(undefined);
      if (isActive) acknowledged({ ...answer, pattern: subscription.pattern }, answer?.offset, answer?.epoch);
    }, answered);
  }

  return {
    /** The gateway has named its limits. @param {Limits} named */
    limit(named) {
      limits = named;
      waitMs = createBudget(limits);
      turnMs = createBudget(limits, APPLICATION_SHARE);
    },

    /**
     * Wait for the turn of a request of the application, or for the end of the connection.
     * @param {number} patienceMs
     * @returns {Promise<void> | undefined} undefined: the turn is now; rejected with `limit_reached` {name, limit, retryAfterS} if it would be later than `patienceMs`
     */
    turn(patienceMs) {
      const delayMs = turnMs(patienceMs);
      if (!delayMs) return;
      return new Promise((resolve) => {
        if (delayMs > patienceMs) throw new HeadgateError("limit_reached", { name: "inbound_per_s", limit: limits.inboundPerS, retryAfterS: Math.ceil((delayMs - patienceMs) / 1000) }, true);
        const mine = startTimer(() => {
          turns.delete(mine);
          resolve(undefined);
        }, delayMs);
        turns.set(mine, resolve);
      });
    },

    /** Take a request out of the budget and return 0, or return how long to wait for one. */
    waitMs: () => waitMs(),

    /** Send the due requests, as far as the budget allows. */
    send() {
      pause();
      const due = () => (connection.isUp() && !timer ? subscriptions.due((refusal) => tell("delivery:error", refusal)) : undefined);
      for (let next = due(); next; next = due()) {
        const delayMs = waitMs();
        if (delayMs) after(delayMs);
        else send(next);
      }
    },

    /** The connection is gone. The next one sends its own requests. */
    clear() {
      clearTimeout(timer);
      timer = undefined;
      for (const pausing of pauses.values()) clearTimeout(pausing);
      pauses.clear();
      for (const [each, resolve] of turns) {
        clearTimeout(each);
        resolve();
      }
      turns.clear();
    },
  };
}
