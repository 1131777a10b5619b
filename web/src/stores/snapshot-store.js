/**
 * SnapshotStore: a value that changes, as React, Vue and Svelte can read it: `subscribe` and `getSnapshot`.
 *
 * In: listeners; word of the source that there is something new. Out: snapshots, and one call of each listener for all changes of
 * one turn. A snapshot is never changed, and stays the same object until there is another, as React demands.
 *
 * The source works while there are listeners. It begins and ends at the end of the turn: a component mounted twice (React's
 * strict mode), or rendered on a server, costs nothing. Without listeners the store holds nothing: it would not know how many
 * events it has missed.
 *
 * @template T
 * @typedef {object} Store
 * @property {(listener: () => void) => () => void} subscribe returns the function that unsubscribes
 * @property {() => T} getSnapshot
 * @property {() => T} getServerSnapshot the one that a server renders, and that a page begins with
 */
/**
 * @template T
 * @typedef {object} Source
 * @property {() => T} read the present value: the same object if nothing has changed
 * @property {() => void} end free everything
 */
import { Machine } from "../base/machine.js";
import { report } from "../base/report.js";
import { Gate } from "../index.js";

/**
 * `joining`: the source begins at the end of this turn · `leaving`: it ends then.
 * @type {Record<"idle" | "joining" | "active" | "leaving", Partial<Record<"join" | "begin" | "leave" | "end", "idle" | "joining" | "active" | "leaving">>>}
 */
export const STORE = {
  idle: { join: "joining" },
  joining: { begin: "active", leave: "idle" },
  active: { leave: "leaving" },
  leaving: { join: "active", end: "idle" },
};

/**
 * @template T
 * @param {T} initial
 * @param {(changed: () => void) => Source<T>} begin
 * @param {() => T} [resting] the value without listeners, default `initial`
 * @returns {Store<T>}
 */
export function createStore(initial, begin, resting = () => initial) {
  const life = new Machine(STORE, "idle");
  /** @type {Set<{ call: () => void }>} one function may listen twice */
  const listeners = new Set();
  /** @type {Source<T> | undefined} */
  let source;
  let snapshot = initial;
  let told = true;

  function changed() {
    if (!told) return;
    told = false;
    queueMicrotask(tell);
  }

  function tell() {
    told = true;
    if (!source) return;
    const next = source.read();
    if (Object.is(next, snapshot)) return;
    snapshot = next;
    for (const listener of [...listeners]) {
      try {
        // One may have ended another.
        if (listeners.has(listener)) listener.call();
      } catch (error) {
        report(error);
      }
    }
  }

  function join() {
    if (!life.offer("join") || !life.is("joining")) return;
    snapshot = resting();
    queueMicrotask(() => {
      if (!life.offer("begin")) return;
      source = begin(changed);
      changed();
    });
  }

  function leave() {
    if (listeners.size) return;
    life.take("leave");
    queueMicrotask(() => {
      if (!life.offer("end")) return;
      source?.end();
      source = undefined;
    });
  }

  return {
    subscribe(call) {
      Gate._check("subscribe: listener", "function", call);
      const listener = { call };
      listeners.add(listener);
      join();
      return () => void (listeners.delete(listener) && leave());
    },
    getSnapshot: () => (life.is("idle") ? resting() : snapshot),
    getServerSnapshot: () => initial,
  };
}
