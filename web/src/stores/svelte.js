/**
 * `headgate/svelte`: the gate in a context, and the stores of headgate/store with Svelte's contract, for `$events`.
 *
 * Call `use…` while a component is created, because they read a context. At other times, `readable` turns a store into one of Svelte's. A server renders the
 * first value. It unsubscribes in the turn in which it subscribes, so it connects to nothing and loads nothing.
 *
 * @import { ConnectOptions } from "../connect.js"
 * @import { EventCallback } from "../dispatcher.js"
 * @import { Gate, SubscribeOptions } from "../gate.js"
 * @import { CollectionOptions } from "./collection-store.js"
 * @import { EventsStoreOptions } from "./events-store.js"
 * @import { PresenceOptions } from "../presence/room.js"
 * @import { Store } from "./snapshot-store.js"
 */
/** @template T @typedef {{ subscribe: (run: (value: T) => void) => () => void }} Readable */
import { getContext, onMount, setContext } from "svelte";
import { Gate as BaseGate } from "../index.js";
import { GATE, STORE } from "../language/options.js";
import { createComponentGate } from "./component-gate.js";
import { collectionStore, eventsStore, presenceStore, statusStore } from "./index.js";

const KEY = Symbol("headgate");

/**
 * Provide a gate to this component and those below: the application's, or one connected while this component is mounted.
 * @param {Gate | string | undefined} source the gate, or the address
 * @param {ConnectOptions} [options]
 * @returns {Gate}
 */
export function provideGate(source, options) {
  if (source && typeof source === "object") {
    BaseGate._check("provideGate: gate", GATE, source);
    return setContext(KEY, source);
  }
  const gate = createComponentGate(source, options);
  onMount(() => {
    gate.open();
    return () => gate.close();
  });
  return setContext(KEY, gate);
}

/**
 * Return the gate.
 * @returns {Gate}
 * @throws {Error} none was provided
 */
export function useGate() {
  const gate = getContext(KEY);
  if (!gate) throw Error("headgate: no gate was provided: call provideGate in a component above");
  return /** @type {Gate} */ (gate);
}

/** Return a store of the gate's status. */
export function useGateStatus() {
  return readable(statusStore(useGate()));
}

/**
 * Return a store of the last events of a pattern: {events, missed, gap, status, error}.
 * @param {string | null} pattern null: none, as with `enabled: false`
 * @param {EventsStoreOptions} [options]
 */
export function useEvents(pattern, options) {
  return readable(eventsStore(useGate(), pattern, options));
}

/**
 * Call a handler for each event of a pattern while the component is mounted.
 * @param {string | null} pattern null: none, as with `enabled: false`
 * @param {EventCallback} handler
 * @param {SubscribeOptions & { enabled?: boolean }} [given]
 */
export function useSubscription(pattern, handler, given = {}) {
  BaseGate._check("useSubscription: handler", "function", handler);
  BaseGate._check("useSubscription: options", "object", given);
  const { enabled = true, ...options } = given;
  const gate = useGate();
  if (pattern !== null && enabled) onMount(() => gate._subscribe(pattern, options, handler, true).close);
}

/**
 * Return a store of a live collection, {items, status, error, dropped, pending}, with `reload` and `publish`.
 * @param {string} topic prefix of the topics, such as `orders`
 * @param {CollectionOptions} [options]
 */
export function useLiveCollection(topic, options) {
  const store = collectionStore(useGate(), topic, options);
  return { ...readable(store), reload: store.reload, publish: store.publish };
}

/**
 * Return a store of the members of a topic, {members, status, error}, with `update`. This user is one while the store has a subscriber.
 * @param {string | null} topic null: none, as with `enabled: false`
 * @param {PresenceOptions & { enabled?: boolean }} [options]
 */
export function usePresence(topic, options) {
  const store = presenceStore(useGate(), topic, options);
  return { ...readable(store), update: store.update };
}

/**
 * Turn a store of headgate/store into one with Svelte's contract.
 * @template T
 * @param {Store<T>} store
 * @returns {Readable<T>}
 */
export function readable(store) {
  BaseGate._check("readable: store", STORE, store);
  const { subscribe, getSnapshot, getServerSnapshot } = store;
  return {
    subscribe(run) {
      BaseGate._check("subscribe: run", "function", run);
      run(getServerSnapshot());
      const tell = () => run(getSnapshot());
      const unsubscribe = subscribe(tell);
      if (getSnapshot() !== getServerSnapshot()) tell();
      return unsubscribe;
    },
  };
}

/** Return the functions, with the types of an application's topics. */
export function hooksFor() {
  return { useGate, useGateStatus, useEvents, useSubscription, useLiveCollection, usePresence };
}
