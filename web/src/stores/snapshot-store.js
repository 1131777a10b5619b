/**
 * SnapshotStore: a value that changes, with `subscribe` and `getSnapshot` for React, Vue and Svelte.
 *
 * In: listeners; reports of the source that something has changed. Out: snapshots, and one call of each listener for all changes of a turn. A snapshot is
 * immutable, and stays the same object until there is another one, as React requires.
 *
 * The source works while there are listeners. It begins and ends at the end of the turn, so a component mounted twice (React's strict mode) or
 * rendered on a server costs nothing. Without listeners the store holds nothing, because it would not know how many events it has missed.
 *
 * @template T
 * @typedef {object} Store
 * @property {(listener: () => void) => () => void} subscribe returns the function that unsubscribes
 * @property {() => T} getSnapshot
 * @property {() => T} getServerSnapshot the snapshot that a server renders, and that a page begins with
 */
/**
 * @template T
 * @typedef {object} Source
 * @property {() => T} read the present value: the same object if nothing has changed
 * @property {() => void} end release everything
 */
import { createChanges } from "../base/changes.js";
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
 * @template {Source<any>} Kind
 * @param {T} initial
 * @param {(changed: () => void) => Kind} begin
 * @param {() => T} [resting] the value without listeners, default `initial`
 * @returns {Store<T> & { _source: () => Kind | undefined }} `_source`: the present source, for the actions of the part that made it
 */
export function createStore(initial, begin, resting = () => initial) {
  const life = new Machine(STORE, "idle");
  /** @type {Set<{ call: () => void }>} one function may listen twice */
  const listeners = new Set();
  /** @type {Kind | undefined} */
  let source;
  let snapshot = initial;

  const changed = createChanges(() => {
    if (!source) return;
    const next = source.read();
    if (Object.is(next, snapshot)) return;
    snapshot = next;
    for (const listener of [...listeners]) {
      try {
        // An earlier listener may have ended this one.
        if (listeners.has(listener)) listener.call();
      } catch (error) {
        report(error);
      }
    }
  });

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
    _source: () => source,
  };
}
