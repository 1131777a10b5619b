/**
 * Expiring: elements that go by themselves after a while, unless someone looks at them.
 *
 * In: elements of one container. Out: `expired` for each whose time is over. Time runs for all of them, from now, or for none:
 * the pointer on the container, or the focus in it, holds them all.
 */

export class Expiring {
  #root;
  #forMs;
  #holds;
  #expired;
  #pointed = false;
  /** @type {any} what had the focus before it came here */
  #before;
  /** @type {Map<HTMLElement, ReturnType<typeof setTimeout> | undefined>} */
  #timers = new Map();

  /**
   * @param {HTMLElement} root
   * @param {number} forMs
   * @param {string} holds selector of an element in `root` that holds them: `:focus`, or `:focus-visible` to leave out the mouse's
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

  /** Its time begins, now or when nobody looks any more. @param {HTMLElement} element */
  start(element) {
    clearTimeout(this.#timers.get(element));
    this.#timers.set(element, this.#timer(element));
  }

  /** @param {HTMLElement} element */
  stop(element) {
    clearTimeout(this.#timers.get(element));
    this.#timers.delete(element);
  }

  /** Give the focus to the first of these that is in the page, by default what had it before. @param {...(HTMLElement | null | undefined)} next */
  handOn(...next) {
    const target = [...next, this.#before].find((each) => each?.isConnected);
    target?.focus({ preventScroll: true });
  }

  #time() {
    for (const element of this.elements) this.start(element);
  }

  /** @param {HTMLElement} element @returns {ReturnType<typeof setTimeout> | undefined} none while someone looks */
  #timer(element) {
    if (this.#pointed || this.#root.querySelector(this.#holds)) return undefined;
    return setTimeout(() => this.#expired(element), this.#forMs);
  }
}
