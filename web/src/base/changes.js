/**
 * Changes: collects the changes of a task, and acts once for all of them. No I/O.
 *
 * It acts in the microtask at the end of the present task, so that changes that cancel out cost nothing.
 */
export function createChanges() {
  let due = false;
  let act = () => {};

  return {
    /** Have this called once for all changes of a task. @param {() => void} then */
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
