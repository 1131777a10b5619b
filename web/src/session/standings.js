/**
 * Standings: the state of each pattern's subscription, under the page's name, and promises that wait for a state.
 *
 * In: patterns with changed subscriptions, changes of the connection. Out: states and refusals; settled promises; `call` for each changed pattern.
 *
 * @import { HeadgateError } from "../language/errors.js"
 * @import { SubscriptionState } from "../subscriptions/subscription.js"
 */
import { disconnected } from "../language/errors.js";

/**
 * @param {ReturnType<typeof import("../subscriptions/subscriptions.js").createSubscriptions>} subscriptions
 * @param {ReturnType<typeof import("../subscriptions/own-topics.js").createOwnTopics>} own
 * @param {{ isClosed: () => boolean, refusal: () => HeadgateError | undefined, stranded: () => HeadgateError | undefined }} connection
 */
export function createStandings(subscriptions, own, connection) {
  /** Checks of the waiting promises, by pattern. @type {Map<string, Set<() => void>>} */
  const waiters = new Map();

  const find = (/** @type {string} */ pattern) => subscriptions.find(own.wired(pattern));

  /** Return why the client is refused, or why a pattern is, if it is in one of these states. @param {string} pattern @param {...SubscriptionState} states */
  function refusalOf(pattern, ...states) {
    const subscription = find(pattern);
    return connection.refusal() ?? (subscription?.is(...states) ? subscription.error : undefined);
  }

  /** Return an error if a pattern has no handlers. @param {string} pattern @returns {HeadgateError | undefined} */
  function unwanted(pattern) {
    const isWanted = !connection.isClosed() && (find(pattern)?.overflow || own.waits(pattern));
    return isWanted ? undefined : disconnected({ pattern });
  }

  /** Wait until a check returns a value, and return it. @template T @param {string} pattern @param {() => T} check @returns {Promise<NonNullable<T>>} */
  const until = (pattern, check) =>
    new Promise((resolve) => {
      const checks = waiters.get(pattern) ?? new Set();
      const again = () => {
        const result = check();
        if (!result) return waiters.set(pattern, checks.add(again));
        resolve(result);
        if (checks.delete(again) && !checks.size) waiters.delete(pattern);
      };
      again();
    });

  /** Return the state of a pattern's subscription. @param {string} pattern @returns {SubscriptionState} */
  const state = (pattern) => (!connection.isClosed() && find(pattern)?.state) || "idle";

  return {
    state,

    /** Return the state, and why the handlers get no events. @param {string} pattern */
    standing: (pattern) => ({ status: state(pattern), error: refusalOf(pattern, "refused", "waiting") ?? null }),

    /** Wait until a pattern is active. @param {string} pattern @returns {Promise<void>} rejected if it cannot become active without a change from outside */
    async subscribed(pattern) {
      const answer = await until(pattern, () => unwanted(pattern) ?? refusalOf(pattern, "refused", "waiting") ?? connection.stranded() ?? find(pattern)?.is("active"));
      if (answer !== true) throw answer;
    },

    /**
     * Wait until a pattern cannot become active without a change from outside, and return the reason, or until the caller no longer waits.
     * @param {string} pattern @param {() => boolean} over @returns {Promise<any>}
     */
    ended: (pattern, over) => until(pattern, () => over() || (unwanted(pattern) ?? refusalOf(pattern, "refused"))),

    /** Return the patterns with a pending promise. */
    awaited: () => waiters.keys(),

    /** Check patterns again, and call `call` for each. @param {string[]} patterns @param {(pattern: string) => void} call */
    check(patterns, call) {
      for (const pattern of patterns) {
        for (const again of [...(waiters.get(pattern) ?? [])]) again();
        call(pattern);
      }
    },
  };
}
