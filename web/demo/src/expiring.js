/**
 * Expiring: elements that expire after a time, unless the user looks at them.
 *
 * In: elements of one container. Out: a call of `expired` for each whose time is over. The pointer on the container, or the focus
 * in it, stops the time of all of them; when both are gone, the time of all starts again.
 */

export class Expiring {
  #root;
  #forMs;
  #holds;
  #expired;
  #pointed = false;
  /** @type {any} the element that had the focus before it came here */
  #before;
  /** @type {Map<HTMLElement, ReturnType<typeof setTimeout> | undefined>} */
  #timers = new Map();

  /**
   * @param {HTMLElement} root
   * @param {number} forMs
   * @param {string} holds selector of an element in `root` that stops the time: `:focus`, or `:focus-visible` to ignore a click
   * @param {(element: HTMLElement) => void} expired
   */
  constructor(root, forMs, holds, expired) {
    this.#root = root;
    this.#forMs = forMs;
    this.#holds = holds;
    this.#expired = expired;
    for (const kind of ["pointerenter", "pointerleave"]) {
      root.addEventListener(kind, () => {
        this.#pointed = kind === "pointerenter";
        this.#time();
      });
    }
    root.addEventListener("focusin", ({ relatedTarget }) => {
      if (!root.contains(/** @type {Node | null} */ (relatedTarget))) this.#before = relatedTarget;
      this.#time();
    });
    root.addEventListener("focusout", () => this.#time());
  }

  /** @returns {HTMLElement[]} oldest first */
  get elements() {
    return [...this.#timers.keys()];
  }

  /** Start the time of an element, now or when the user no longer looks. @param {HTMLElement} element */
  start(element) {
    clearTimeout(this.#timers.get(element));
    this.#timers.set(element, this.#timer(element));
  }

  /** @param {HTMLElement} element */
  stop(element) {
    clearTimeout(this.#timers.get(element));
    this.#timers.delete(element);
  }

  /** Give the focus to the first of these elements that is in the page, else to the one that had it before. @param {...(HTMLElement | null | undefined)} next */
  handOn(...next) {
    const target = [...next, this.#before].find((each) => each?.isConnected);
    target?.focus({ preventScroll: true });
  }

  #time() {
    for (const element of this.elements) this.start(element);
  }

  /** @param {HTMLElement} element @returns {ReturnType<typeof setTimeout> | undefined} none while the user looks */
  #timer(element) {
    if (this.#pointed || this.#root.querySelector(this.#holds)) return undefined;
    return setTimeout(() => this.#expired(element), this.#forMs);
  }
}
