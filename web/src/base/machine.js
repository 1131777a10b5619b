/**
 * A machine: a state, and the only table of the steps from each state to the next. Pure, no I/O.
 *
 * A step that the table does not have is a bug of this package. The sources throw, so that tests find it. The build drops statements with the label STRICT,
 * so in a page the state stays unchanged and the page continues.
 */

/**
 * @template {string} State
 * @template {string} Step
 */
export class Machine {
  #table;
  #state;
  #taken;

  /**
   * @param {Record<State, Partial<Record<Step, State>>>} table state → step → next state @param {NoInfer<State>} state the first
   * @param {(was: State, step: Step, note?: any) => void} [taken] called after each step
   */
  constructor(table, state, taken) {
    this.#table = table;
    this.#state = state;
    this.#taken = taken;
  }

  get state() {
    return this.#state;
  }

  /** Return whether this is one of the given states. @param {...State} states */
  is(...states) {
    return states.includes(this.#state);
  }

  /** Return whether the table has a step here. @param {Step} step */
  can(step) {
    return step in this.#table[this.#state];
  }

  /** Take a step if the table has it here. Return whether it was taken. @param {Step} step @param {any} [note] for `taken` */
  offer(step, note) {
    const possible = this.can(step);
    if (possible) this.take(step, note);
    return possible;
  }

  /**
   * Take a step.
   * @param {Step} step @param {any} [note] for `taken`
   * @returns {boolean} whether the state has changed
   * @throws {Error} (in the sources) the table has no such step here
   */
  take(step, note) {
    const was = this.#state;
    const next = this.#table[was][step];
    // biome-ignore lint: the build drops statements with this label
    STRICT: if (!next) throw new Error(`headgate: no step "${step}" from "${was}"`);
    this.#state = next ?? was;
    this.#taken?.(was, step, note);
    return next !== was;
  }
}
