/**
 * `headgate/react`: the gate in a context, and hooks over the stores of headgate/store.
 *
 * A server renders the stores' server snapshots and connects to nothing. A component that strict mode mounts twice subscribes once. Hooks keep their
 * subscription while pattern and options have the same values. Functions may differ at each render.
 *
 * @import { ConnectOptions } from "../connect.js"
 * @import { EventCallback } from "../dispatcher.js"
 * @import { Gate, SubscribeOptions } from "../gate.js"
 * @import { CollectionOptions } from "./collection-store.js"
 * @import { EventsSnapshot, EventsStoreOptions } from "./events-store.js"
 * @import { PresenceOptions } from "../presence/room.js"
 * @import { Store } from "./snapshot-store.js"
 */
import { createContext, createElement, useContext, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { checkPayload, Gate as BaseGate } from "../index.js";
import { createComponentGate } from "./component-gate.js";
import { GATE, STORE } from "../language/options.js";
import { collectionStore, eventsStore, presenceStore, statusStore } from "./index.js";

const GateContext = createContext(/** @type {Gate | null} */ (null));

/**
 * Provide a gate to the components below: the application's, or one connected while this is mounted.
 * @param {{ gate?: Gate, url?: string, options?: ConnectOptions, children?: any }} props `options` are read when it connects; the `token` function is that of
 *   the latest render
 */
export function GateProvider({ gate: given, url, options, children }) {
  // null must not lead to a connection to the page's own origin.
  if (given !== undefined) BaseGate._check("GateProvider: gate", GATE, given);
  if (options !== undefined) check("GateProvider", options);
  const latest = useLatest(options);
  const [closed, setClosed] = useState(0);
  // biome-ignore lint/correctness/useExhaustiveDependencies: options are read when the address comes, or when the gate before was closed
  const own = useMemo(() => (given ? undefined : createComponentGate(url, latestToken(options, latest))), [given, url, closed]);
  /** Gates to close at the end of this turn, unless they are mounted again. */
  const leaving = useRef(/** @type {Set<Gate>} */ (new Set())).current;

  useEffect(() => {
    if (!own) return;
    leaving.delete(own);
    if (own.status === "closed") return setClosed((count) => count + 1);
    own.open();
    return () => {
      leaving.add(own);
      queueMicrotask(() => leaving.delete(own) && own.close());
    };
  }, [own, leaving]);

  return createElement(GateContext.Provider, { value: given ?? own ?? null }, children);
}

/**
 * Return the gate.
 * @returns {Gate}
 * @throws {Error} there is no GateProvider above
 */
export function useGate() {
  const gate = useContext(GateContext);
  if (!gate) throw Error("headgate: there is no <GateProvider> above this component");
  return gate;
}

/** Return the gate's status. */
export function useGateStatus() {
  const gate = useGate();
  return useStore(useMemo(() => statusStore(gate), [gate]));
}

/**
 * Return the last events of a pattern: {events, missed, gap, status, error}.
 * @param {string | null} pattern null: not known yet, as with `enabled: false`
 * @param {EventsStoreOptions & { select?: (snapshot: EventsSnapshot) => any }} [options] `select` picks what this component needs, which renders only when that
 *   value changes
 */
export function useEvents(pattern, options = {}) {
  const gate = useGate();
  check("useEvents", options);
  const { limit, enabled, select } = options;
  if (select !== undefined) BaseGate._check("useEvents: select", "function", select);
  const wanted = useWanted(options);
  const store = useMemo(() => eventsStore(gate, pattern, { ...wanted, ...given({ limit, enabled }) }), [gate, pattern, limit, enabled, wanted]);
  return useStore(useMemo(() => (select ? selected(store, select) : store), [store, select]));
}

/**
 * Call a handler for each event of a pattern, without rendering.
 * @param {string | null} pattern null: not known yet, as with `enabled: false`
 * @param {EventCallback} handler called as of the latest render
 * @param {SubscribeOptions & { enabled?: boolean }} [options]
 */
export function useSubscription(pattern, handler, options = {}) {
  const gate = useGate();
  check("useSubscription", options);
  BaseGate._check("useSubscription: handler", "function", handler);
  const { enabled = true } = options;
  const latest = useLatest(handler);
  const wanted = useWanted(options);
  useEffect(() => {
    if (pattern === null || !enabled) return;
    const { close } = gate._subscribe(pattern, wanted, (data, event) => latest.current.call(gate, data, event), true);
    return close;
  }, [gate, pattern, enabled, wanted, latest]);
}

/**
 * Return a live collection: {items, status, error, dropped, pending, reload, publish}.
 * @param {string} topic prefix of the topics, such as `orders`
 * @param {CollectionOptions & { key?: string }} [options] a different `key` makes a new collection, for which `load` fetches other items
 */
export function useLiveCollection(topic, options = {}) {
  const gate = useGate();
  check("useLiveCollection", options);
  const latest = useLatest(options);
  const { key, initial, pattern, idAttribute, versionAttribute, limit, resyncSpreadMs, outbox } = options;
  const [hasLoad, hasMapping] = [options.load, options.mapping].map((each) => typeof each === "function");
  // biome-ignore lint/correctness/useExhaustiveDependencies: initial is read when the collection is another
  const store = useMemo(() => {
    const load = hasLoad ? (/** @type {any} */ how) => latest.current.load?.(how) ?? [] : options.load;
    const mapping = hasMapping ? (/** @type {any} */ event) => latest.current.mapping?.(event) : options.mapping;
    return collectionStore(gate, topic, given({ initial, load, mapping, pattern, idAttribute, versionAttribute, limit, resyncSpreadMs, outbox }));
  }, [gate, topic, key, pattern, idAttribute, versionAttribute, limit, resyncSpreadMs, outbox, hasLoad, hasMapping]);
  const snapshot = useStore(store);
  return useMemo(() => ({ ...snapshot, reload: store.reload, publish: store.publish }), [snapshot, store]);
}

/**
 * Return the members of a topic, {members, status, error, update}. This user is one while the component is mounted.
 * @param {string | null} topic null: not known yet, as with `enabled: false`
 * @param {PresenceOptions & { enabled?: boolean }} [options] this user has the `meta` of the latest render
 */
export function usePresence(topic, options = {}) {
  const gate = useGate();
  check("usePresence", options);
  const { enter, enabled, meta } = options;
  const latest = useLatest(meta);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another meta goes to the same room
  const store = useMemo(() => presenceStore(gate, topic, given({ enter, enabled, meta })), [gate, topic, enter, enabled]);
  const text = JSON.stringify(meta === undefined ? meta : checkPayload(meta));
  const before = useRef(text);
  useEffect(() => {
    if (text !== before.current && enter !== false) store.update(latest.current ?? null);
    before.current = text;
  }, [store, text, latest, enter]);
  const snapshot = useStore(store);
  return useMemo(() => ({ ...snapshot, update: store.update }), [snapshot, store]);
}

/**
 * Return the snapshot of an inbox: {items, unread, mutes, hasMore, status, error}. The inbox has the actions.
 * @template T
 * @param {Store<T>} inbox of headgate/inbox
 */
export function useInbox(inbox) {
  BaseGate._check("useInbox: inbox", STORE, inbox);
  return useStore(inbox);
}

/** Return the hooks, with the types of an application's topics. */
export function hooksFor() {
  return { useGate, useGateStatus, useEvents, useSubscription, useLiveCollection, usePresence };
}

/**
 * Return options with a token function that always calls the one of the latest render.
 * @param {ConnectOptions | undefined} options @param {{ current: ConnectOptions | undefined }} latest
 */
function latestToken(options, latest) {
  const { token } = options ?? {};
  if (typeof token !== "function") return options;
  return {
    ...options,
    token() {
      const now = latest.current?.token;
      return typeof now === "function" ? now() : token();
    },
  };
}

/** Return a store of a part of each snapshot, selected once for each snapshot. @param {Store<any>} store @param {(snapshot: any) => any} select @returns {Store<any>} */
function selected({ subscribe, getSnapshot, getServerSnapshot }, select) {
  /** @type {any} */
  let snapshot;
  /** @type {any} */
  let part;
  const read = (/** @type {any} */ now) => {
    if (now !== snapshot) part = select(now);
    snapshot = now;
    return part;
  };
  return { subscribe, getSnapshot: () => read(getSnapshot()), getServerSnapshot: () => read(getServerSnapshot()) };
}

/** @param {string} of the hook @param {any} options @throws {TypeError} */
const check = (of, options) => BaseGate._check(`${of}: options`, "object", options);

/** @template T @param {Store<T>} store @returns {T} */
function useStore({ subscribe, getSnapshot, getServerSnapshot }) {
  return useSyncExternalStore(subscribe, getSnapshot, getServerSnapshot);
}

/** Return options of a subscription, the same object while their values do not change. @param {SubscribeOptions} options @returns {SubscribeOptions} */
function useWanted({ overflow, repair, since, signal }) {
  const sinceText = since && JSON.stringify(since);
  return useMemo(() => given({ overflow, repair, since: sinceText && JSON.parse(sinceText), signal }), [overflow, repair, sinceText, signal]);
}

/** Keep the value of the latest render, for functions called later. @template T @param {T} value */
function useLatest(value) {
  const latest = useRef(value);
  useEffect(() => {
    latest.current = value;
  });
  return latest;
}

/** Return options without undefined ones. @param {Record<string, any>} options @returns {any} */
function given(options) {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}
