/**
 * `headgate/vue`: the gate by provide and inject, and composables over the stores of headgate/store.
 *
 * They subscribe when their component is mounted, so a server renders the stores' server snapshots and connects to nothing. Outside a component they subscribe
 * at once. They end with their scope, which may outlive the component. If a pattern, topic or options are a ref or a getter, the subscription changes with them.
 *
 * @import { ConnectOptions } from "../connect.js"
 * @import { EventCallback } from "../dispatcher.js"
 * @import { Gate, SubscribeOptions } from "../gate.js"
 * @import { CollectionOptions } from "./collection-store.js"
 * @import { EventsStoreOptions } from "./events-store.js"
 * @import { PresenceOptions } from "../presence/room.js"
 * @import { Store } from "./snapshot-store.js"
 */
/** @template T @typedef {import("vue").MaybeRefOrGetter<T>} Given */
import { computed, getCurrentInstance, getCurrentScope, inject, onMounted, onScopeDispose, provide, shallowRef, toValue, watch } from "vue";
import { checkPayload, Gate as BaseGate } from "../index.js";
import { GATE, STORE } from "../language/options.js";
import { createComponentGate } from "./component-gate.js";
import { collectionStore, eventsStore, presenceStore, statusStore } from "./index.js";

/** @type {import("vue").InjectionKey<Gate>} */
const KEY = Symbol("headgate");

/** A plugin that provides the application's gate to all components: `app.use(gatePlugin, gate)`. */
export const gatePlugin = {
  /** @param {{ provide: (key: any, value: any) => unknown }} app @param {Gate} gate */
  install(app, gate) {
    BaseGate._check("gatePlugin: gate", GATE, gate);
    app.provide(KEY, gate);
  },
};

/**
 * Provide a gate to this component and those below: the application's, or one connected while this component is mounted.
 * @param {Gate | string | undefined} source the gate, or the address
 * @param {ConnectOptions} [options]
 * @returns {Gate}
 */
export function provideGate(source, options) {
  if (source && typeof source === "object") {
    BaseGate._check("provideGate: gate", GATE, source);
    provide(KEY, source);
    return source;
  }
  const gate = createComponentGate(source, options);
  provide(KEY, gate);
  begin(() => gate.open());
  onScopeDispose(() => gate.close());
  return gate;
}

/**
 * Return the gate.
 * @returns {Gate}
 * @throws {Error} none was provided
 */
export function useGate() {
  const gate = inject(KEY, null);
  if (!gate) throw Error("headgate: no gate was provided: call provideGate in a component above");
  return gate;
}

/** Return a ref of the gate's status. */
export function useGateStatus() {
  const gate = useGate();
  return useStore(() => statusStore(gate)).snapshot;
}

/**
 * Return refs of the last events of a pattern: {events, missed, gap, status, error}.
 * @param {Given<string | null>} pattern null: not known yet, as with `enabled: false`
 * @param {Given<EventsStoreOptions>} [options]
 */
export function useEvents(pattern, options) {
  const gate = useGate();
  return refsOf(useStore(() => eventsStore(gate, toValue(pattern), toValue(options))));
}

/**
 * Call a handler for each event of a pattern.
 * @param {Given<string | null>} pattern null: not known yet, as with `enabled: false`
 * @param {EventCallback} handler
 * @param {Given<SubscribeOptions & { enabled?: boolean }>} [options]
 */
export function useSubscription(pattern, handler, options) {
  const gate = useGate();
  BaseGate._check("useSubscription: handler", "function", handler);
  begin(() => {
    watch(
      // A copy, which reads each option: a ref may hold an object that changes.
      () => ({ ...toValue(options), now: toValue(pattern) }),
      ({ now, enabled = true, ...wanted }, _was, onCleanup) => {
        if (now !== null && enabled) onCleanup(gate._subscribe(now, wanted, handler, true).close);
      },
      { immediate: true },
    );
  });
}

/**
 * Return a live collection: refs {items, status, error, dropped, pending}, `reload` and `publish`.
 * @param {Given<string>} topic prefix of the topics, such as `orders`
 * @param {Given<CollectionOptions>} [options]
 */
export function useLiveCollection(topic, options) {
  const gate = useGate();
  const live = useStore(() => collectionStore(gate, toValue(topic), toValue(options)));
  return {
    ...refsOf(live),
    reload: () => live.store.value.reload(),
    publish: (/** @type {string} */ to, /** @type {unknown} */ data) => live.store.value.publish(to, data),
  };
}

/**
 * Return refs of the members of a topic, {members, status, error}, and `update`. This user is one while the component is mounted.
 * @param {Given<string | null>} topic null: not known yet, as with `enabled: false`
 * @param {Given<PresenceOptions & { enabled?: boolean }>} [options] a changed `meta` updates the same room
 */
export function usePresence(topic, options) {
  const gate = useGate();
  const meta = computed(() => {
    const { meta: now } = toValue(options) ?? {};
    return JSON.stringify(now === undefined ? now : checkPayload(now));
  });
  let latestMeta = toValue(options)?.meta;
  // Compared as text, because an object with the same values is the same room. Before Vue 3.4 a computed notifies without a change.
  const read = () => JSON.stringify([toValue(topic), toValue(options)?.enter, toValue(options)?.enabled]);
  const kind = shallowRef(read());
  const changed = (/** @type {string} */ now) => {
    kind.value = now;
  };
  watch(read, changed, { flush: "sync" });
  const room = useStore(() => {
    const [wanted, enter, enabled] = JSON.parse(kind.value);
    return presenceStore(gate, wanted, { enter: enter ?? undefined, enabled: enabled ?? undefined, meta: latestMeta });
  });
  watch(meta, () => {
    latestMeta = toValue(options)?.meta ?? null;
    if (toValue(options)?.enter !== false) room.store.value.update(latestMeta);
  });
  return { ...refsOf(room), update: (/** @type {any} */ now) => room.store.value.update(now) };
}

/**
 * Return a ref of the snapshot of an inbox: {items, unread, mutes, hasMore, status, error}. The inbox has the actions.
 * @template T
 * @param {Store<T>} inbox of headgate/inbox
 */
export function useInbox(inbox) {
  BaseGate._check("useInbox: inbox", STORE, inbox);
  return useStore(() => inbox).snapshot;
}

/** Return the composables, with the types of an application's topics. */
export function hooksFor() {
  return { useGate, useGateStatus, useEvents, useSubscription, useLiveCollection, usePresence };
}

/**
 * @template T
 * @template {Store<T>} Kind
 * @param {() => Kind & Store<T>} make called again when what it reads changes
 */
function useStore(make) {
  const store = computed(make);
  const snapshot = shallowRef(store.value.getServerSnapshot());
  begin(() => {
    watch(
      store,
      ({ subscribe, getSnapshot }, _was, onCleanup) => {
        const read = () => {
          snapshot.value = getSnapshot();
        };
        onCleanup(subscribe(read));
        read();
      },
      { immediate: true },
    );
  });
  return { store, snapshot };
}

/**
 * Return a ref for each field of a snapshot.
 * @template {object} T @param {{ snapshot: import("vue").ShallowRef<T> }} of
 * @returns {{ [Field in keyof T]: import("vue").ComputedRef<T[Field]> }}
 */
function refsOf({ snapshot }) {
  const fields = /** @type {(keyof T)[]} */ (Object.keys(snapshot.value));
  return /** @type {any} */ (Object.fromEntries(fields.map((field) => [field, computed(() => snapshot.value[field])])));
}

/** Act when the component is mounted, which never happens on a server. Outside a component, act at once. What this begins ends with the present scope. @param {() => void} act */
function begin(act) {
  // Not the component's in a Pinia store, which outlives the component that made it.
  const scope = getCurrentScope();
  if (getCurrentInstance()) onMounted(() => scope?.run(act));
  else act();
}
