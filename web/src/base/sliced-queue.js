/**
 * The sliced queue: messages in order, bounded, dispatched in slices of time. No I/O.
 *
 * A page with a busy main thread finds hundreds of messages at once. They are dispatched for at most SLICE_MS at a
 * time, then the page gets a turn.
 *
 * No message is ever discarded, except by `close`. When the line is full, `full` is called, and the owner stops the source until the
 * line is empty again. So memory is bounded, and an overflow loses nothing.
 */
/** Time that dispatching may take before the page gets a turn: well below the 50 ms of a "long task". */
const SLICE_MS = 12;
/** Dispatched messages that may stay in front of the line before it is cut: a shift for each would move all that wait. */
const MAX_SPENT = 1000;

/**
 * @template T
 * @param {number} limit messages
 * @param {(message: T) => void} dispatch must not throw
 * @param {{ full: () => void, drained: () => void, empty: () => void }} owner `full`: it holds `limit` messages; `drained`: it
 *   was full and is empty; `empty`: everything was dispatched
 */
export function createSlicedQueue(limit, dispatch, { full, drained, empty }) {
  /** @type {T[]} */
  let line = [];
  /** Index of the first that waits. */
  let first = 0;
  /** End of the slice, which everything shares until the page has had a turn; 0: the next message begins one. */
  let sliceEnds = 0;
  let isRunning = false;
  /** From `limit` messages on until it is empty. */
  let isFull = false;
  const turn = createTurn(() => {
    sliceEnds = 0;
    if (first < line.length) run();
  });

  function run() {
    if (!sliceEnds) {
      sliceEnds = performance.now() + SLICE_MS;
      turn.post();
    }
    // Else the loop below comes to it.
    if (isRunning) return;
    isRunning = true;
    while (first < line.length && performance.now() < sliceEnds) {
      dispatch(line[first++]);
      if (first > MAX_SPENT) trim();
    }
    isRunning = false;
    if (first < line.length) return;
    trim();
    if (isFull) {
      isFull = false;
      drained();
    }
    empty();
  }

  /** Drop messages that were dispatched. */
  function trim() {
    if (first < line.length) line = line.slice(first);
    else line.length = 0;
    first = 0;
  }

  return {
    /** Return how many messages wait. */
    depth: () => line.length - first,

    /** Dispatch a message now if nothing waits and the slice has time left, else in its turn. @param {T} message */
    put(message) {
      line.push(message);
      if (!isFull && line.length - first >= limit) {
        isFull = true;
        full();
      }
      run();
    },

    /** Discard the messages that wait, for good. */
    close() {
      line = [];
      first = 0;
      turn.close?.();
    },
  };
}

/**
 * Return a turn: `post` has `act` called once the page has handled input, painting and timers.
 * @param {() => void} act @returns {{ post: () => void, close?: () => void }}
 */
function createTurn(act) {
  // In Node a message port is served before timers and sockets get their turn, so a long line would block them.
  if (typeof setImmediate === "function") return { post: () => setImmediate(act) };
  // Not a timer: browsers delay those of hidden pages by up to a minute.
  try {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = act;
    return {
      post: () => port2.postMessage(0),
      close: () => port1.close(),
    };
  } catch {
    // A simulated page, such as jsdom's.
    return { post: () => setTimeout(act) };
  }
}
