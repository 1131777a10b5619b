/**
 * Polling: a read that a view repeats while it is open and its page is visible.
 *
 * In: the time between reads; calls of `ask` when the reader has chosen something else. Out: answers and faults. Only the latest read counts, and none begins by
 * itself while it is under way.
 *
 * @template T
 * @param {number} everyMs
 * @param {() => Promise<T>} read
 * @param {(answer: T) => void} show
 * @param {(error: unknown) => void} failed
 */
export function poll(everyMs, read, show, failed) {
  let latest = 0;
  let isUnderWay = false;

  /** Read now. */
  async function ask() {
    const nth = ++latest;
    isUnderWay = true;
    try {
      const answer = await read();
      if (nth === latest) show(answer);
    } catch (error) {
      if (nth === latest) failed(error);
    }
    if (nth === latest) isUnderWay = false;
  }

  const timer = setInterval(() => document.hidden || isUnderWay || ask(), everyMs);
  ask();
  return {
    ask,

    close() {
      latest++;
      clearInterval(timer);
    },
  };
}
