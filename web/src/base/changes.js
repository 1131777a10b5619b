/**
 * Changes: told of each change, acts once for all of a task. No I/O.
 *
 * Subscriptions are brought into step, waiters woken and the application told in the microtask at the end of the present
 * task, so that changes that cancel out cost nothing.
 */

/** @param {() => void} bringIntoStep @param {() => void} tell */
export function createChanges(bringIntoStep, tell) {
  let due = false;
  /** @type {((nothing?: any) => void)[]} */
  const waiters = [];

  return {
    /** Something has changed. */
    changed() {
      if (due) return;
      due = true;
      queueMicrotask(() => {
        due = false;
        bringIntoStep();
        for (const resolve of waiters.splice(0)) resolve();
        tell();
      });
    },

    /** Wait until something has changed. */
    next: () => new Promise((resolve) => waiters.push(resolve)),
  };
}
