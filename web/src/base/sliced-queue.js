/**
 * The sliced queue: messages in order, bounded, dispatched in slices of time. No I/O.
 *
 * A page with a busy main thread gets hundreds of messages at once. They are dispatched for at most SLICE_MS at a time, and then the page gets a turn.
 *
 * Only `close` discards messages. When the queue is full, `full` is called, and the owner stops the source until the queue is empty again. So memory is
 * bounded, and an overflow loses nothing.
 */
/** The longest slice of dispatching, well below the 50 ms of a "long task". */
const SLICE_MS = 12;
/** Dispatched messages that may stay at the front of the array before it is cut. A shift for each would move all that wait. */
const MAX_SPENT = 1000;

/**
 * @template T
 * @param {number} limit messages
 * @param {(message: T) => void} dispatch must not throw
 * @param {{ full: () => void, drained: () => void, empty: () => void }} owner `full`: it holds `limit` messages; `drained`: it was full and is empty
 *   now; `empty`: everything was dispatched
 */
export function createSlicedQueue(limit, dispatch, { full, drained, empty }) {
  /** @type {T[]} */
  let line = [];
  /** Index of the first message that waits. */
  let first = 0;
  /** End of the present slice, which lasts until the page has had a turn; 0: the next message begins one. */
  let sliceEnds = 0;
  let isRunning = false;
  /** Whether it has held `limit` messages and has not been empty since. */
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
    // The running loop below dispatches the message.
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

  /** Drop dispatched messages from the array. */
  function trim() {
    if (first < line.length) line = line.slice(first);
    else line.length = 0;
    first = 0;
  }

  return {
    /** Return how many messages wait. */
    depth: () => line.length - first,

    /** Dispatch a message: now, if nothing waits and the slice has time left, or in its turn. @param {T} message */
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
 * Return an object whose `post` calls `act` after the page has handled input, painting and timers.
 * @param {() => void} act @returns {{ post: () => void, close?: () => void }}
 */
function createTurn(act) {
  // Node serves a message port before timers and sockets, so a long queue would block them.
  if (typeof setImmediate === "function") return { post: () => setImmediate(act) };
  // Not a timer, because browsers delay those of hidden pages by up to a minute.
  try {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = act;
    return {
      post: () => port2.postMessage(0),
      close: () => port1.close(),
    };
  } catch {
    // A simulated page, such as jsdom.
    return { post: () => setTimeout(act) };
  }
}
