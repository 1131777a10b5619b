/**
 * Collects the changes of a task and acts once for all of them, in a microtask after it, so that changes that cancel out cost nothing. No I/O.
 */
export function createChanges() {
  let due = false;
  let act = () => {};

  return {
    /** Set the function that acts. @param {() => void} then */
    watch(then) {
      act = then;
    },

    /** Something has changed. */
    changed() {
      if (due) return;
      due = true;
      queueMicrotask(() => {
        due = false;
        act();
      });
    },
  };
}
