/**
 * Collects the changes of a task and acts once for all of them, in a microtask after it, so that changes that cancel out cost nothing. No I/O.
 */

/** Return the function that notes a change. @param {() => void} act called once for all changes of a task */
export function createChanges(act) {
  let due = false;
  return () => {
    if (due) return;
    due = true;
    queueMicrotask(() => {
      due = false;
      act();
    });
  };
}
