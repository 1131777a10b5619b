/** headgate/react, /vue and /svelte, as far as they need no page: rendering on a server, scopes, contracts. tests/e2e has the page. */
import assert from "node:assert/strict";
import { afterEach, describe, it, mock } from "node:test";
import { createRequire } from "node:module";
import { act, createElement, StrictMode, Suspense } from "react";
import { renderToString as renderReact } from "react-dom/server";
import { createRenderer, createSSRApp, effectScope, h, nextTick, ref } from "vue";
import { renderToString as renderVue } from "vue/server-renderer";
import { get } from "svelte/store";
import { eventsStore, statusStore } from "#headgate/store";
import * as react from "#headgate/react";
import * as svelte from "#headgate/svelte";
import * as vue from "#headgate/vue";
import { begin } from "../begin.js";
import { settle } from "../fake-gateway.js";

const require = createRequire(import.meta.url);
/** The answer to `enter`, with one user there. */
const part = (/** @type {string} */ topic) => ({ ok: true, topic, copy: "c1", version: 0, count: 1, members: [["ann", 1, 1000, null]], next: null });

/** A transport that no test may use. */
const FORBIDDEN = { io: () => assert.fail("a server connects to nothing"), token: () => assert.fail("nor asks for a token") };

describe("headgate/react", () => {
  const { GateProvider, useEvents, useGateStatus, useLiveCollection } = react;
  const load = () => assert.fail("a server loads nothing");

  function Orders() {
    const { events, status } = useEvents("orders.#");
    const { items } = useLiveCollection("orders", { load, initial: [{ id: 7 }] });
    return createElement("p", null, `${useGateStatus()} ${status} ${events.length} ${items[0].id}`);
  }

  for (const url of ["https://example.com", undefined]) {
    it(`renders on a server without a connection or a timer, ${url ? "at an address" : "at the page's own"}`, async () => {
      const timers = mock.method(globalThis, "setTimeout");
      const page = createElement(StrictMode, null, createElement(GateProvider, { url, options: FORBIDDEN }, createElement(Suspense, null, createElement(Orders))));
      assert.match(renderReact(page), /<p>idle idle 0 7<\/p>/);
      await settle();
      assert.equal(timers.mock.callCount(), 0);
    });
  }

  describe("in a page", () => {
    /** Render components in jsdom. Return how to render again, and how to let React finish. */
    async function mount(gate, component) {
      const { JSDOM } = createRequire(require.resolve("jest-environment-jsdom"))("jsdom");
      const { window } = new JSDOM("<div id=root></div>");
      for (const [name, value] of Object.entries({ window, document: window.document, navigator: window.navigator, IS_REACT_ACT_ENVIRONMENT: true })) {
        pageGlobals.push([name, Object.getOwnPropertyDescriptor(globalThis, name)]);
        Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
      }
      const { createRoot } = await import("react-dom/client");
      const root = createRoot(window.document.getElementById("root"));
      roots.push(root);
      return (props) => act(async () => root.render(createElement(GateProvider, { gate }, createElement(component, props))));
    }
    const pageGlobals = [];
    const roots = [];
    afterEach(async () => {
      for (const root of roots.splice(0)) await act(async () => root.unmount());
      for (const [name, was] of pageGlobals.splice(0)) {
        if (was) Object.defineProperty(globalThis, name, was);
        else delete globalThis[name];
      }
    });

    it("subscribes to nothing without a pattern, or while it is not enabled", async () => {
      const { gateway, gate } = begin();
      const statuses = [];
      const handled = [];
      const render = await mount(gate, ({ pattern, enabled }) => {
        statuses.push(useEvents(pattern, { enabled }).status);
        react.useSubscription(pattern, (data) => handled.push(data), { enabled });
        return null;
      });
      await render({ pattern: null });
      await render({ pattern: "a", enabled: false });
      await gateway.welcome();
      await act(settle);
      assert.deepEqual([gate.state.subscriptions, new Set(statuses)], [{}, new Set(["idle"])]);
      await render({ pattern: "a", enabled: true });
      await gateway.answer("subscribe");
      await act(settle);
      gateway.event("a", 1, 101);
      assert.deepEqual([gate.state.subscriptions, statuses.at(-1), handled], [{ a: "active" }, "active", [1]]);
      await render({ pattern: "a", enabled: false });
      await act(settle);
      assert.deepEqual((await gateway.answer("unsubscribe")).pattern, "a");
    });

    it("is in a topic while it is mounted, and says another meta in the same room", async () => {
      const { gateway, gate } = begin();
      /** @type {any} */
      let now;
      const render = await mount(gate, ({ topic, meta }) => {
        now = react.usePresence(topic, { meta });
        return null;
      });
      await render({ topic: null });
      await gateway.welcome();
      await act(settle);
      assert.deepEqual([gateway.requests.length, now.status, now.members], [0, "waiting", []]);
      await render({ topic: "rooms.7", meta: { typing: false } });
      await act(settle);
      const entered = await gateway.answer("presence", part("rooms.7"));
      await act(settle);
      assert.deepEqual([entered, now.status, now.members.map(({ user }) => user)], [{ topic: "rooms.7", act: "enter", meta: { typing: false } }, "live", ["ann"]]);
      await render({ topic: "rooms.7", meta: { typing: false } });
      assert.equal(gateway.requests.length, 0);
      await render({ topic: "rooms.7", meta: { typing: true } });
      assert.deepEqual(await gateway.answer("presence", part("rooms.7")), { topic: "rooms.7", act: "enter", meta: { typing: true } });
      await act(settle);
      now.update("away");
      assert.equal((await gateway.answer("presence", part("rooms.7"))).meta, "away");
      await act(settle);
      await render({ topic: null });
      await act(settle);
      assert.deepEqual([await gateway.answer("presence"), now.status], [{ topic: "rooms.7", act: "leave" }, "waiting"]);
    });

    it("enters nothing where it only watches, whatever its meta is", async () => {
      const { gateway, gate } = begin();
      const render = await mount(gate, ({ meta }) => {
        react.usePresence("rooms.7", { enter: false, meta });
        return null;
      });
      await gateway.welcome();
      for (const meta of [1, 2, 3]) await render({ meta });
      await act(settle);
      assert.equal((await gateway.answer("presence", part("rooms.7"))).act, "watch");
      await act(settle);
      await render({ meta: 4 });
      await act(settle);
      assert.deepEqual(gateway.requests, []);
    });

    it("renders when what is selected is another value, by the latest function", async () => {
      const { gateway, gate } = begin();
      const rendered = [];
      const render = await mount(gate, ({ least }) => {
        rendered.push(useEvents("a", { select: ({ events }) => events.filter(({ data }) => data >= least).length }));
        return null;
      });
      await render({ least: 2 });
      await gateway.welcome();
      await act(settle);
      const before = rendered.length;
      gateway.event("a", 1, 101);
      await act(settle);
      assert.deepEqual([rendered.at(-1), rendered.length], [0, before]);
      gateway.event("a", 2, 102);
      await act(settle);
      assert.deepEqual([rendered.at(-1), rendered.length], [1, before + 1]);
      await render({ least: 1 });
      assert.equal(rendered.at(-1), 2);
    });
  });

  it("says that a hook has no provider above it", () => {
    assert.throws(() => renderReact(createElement(Orders)), /no <GateProvider>/);
  });

  it("has the hooks with other types, not others", () => {
    assert.deepEqual(react.hooksFor(), { useEvents, useGate: react.useGate, useGateStatus, useLiveCollection, useSubscription: react.useSubscription, usePresence: react.usePresence });
  });
});

describe("headgate/vue", () => {
  it("renders on a server without a connection or a timer", async () => {
    const timers = mock.method(globalThis, "setTimeout");
    const Orders = {
      setup() {
        const { events, status } = vue.useEvents("orders.#");
        const { items } = vue.useLiveCollection("orders", { load: () => assert.fail("a server loads nothing"), initial: [{ id: 7 }] });
        vue.useSubscription("orders.#", () => {});
        const gateStatus = vue.useGateStatus();
        return () => h("p", `${gateStatus.value} ${status.value} ${events.value.length} ${items.value[0].id}`);
      },
    };
    const app = createSSRApp({
      setup() {
        vue.provideGate(undefined, FORBIDDEN);
        return () => h(Orders);
      },
    });
    assert.equal(await renderVue(app), "<p>idle idle 0 7</p>");
    await settle();
    assert.equal(timers.mock.callCount(), 0);
  });

  /** Run a composable in a scope of an application with a gate. */
  function scoped(gate, act) {
    const app = createSSRApp({}).use(vue.gatePlugin, gate);
    const scope = effectScope();
    return { scope, made: scope.run(() => app.runWithContext(act)) };
  }

  it("brings events into refs, follows a pattern that changes, and unsubscribes with its scope", async () => {
    const { gateway, gate } = begin();
    const pattern = ref("a.*");
    const handled = [];
    const { scope, made } = scoped(gate, () => {
      vue.useSubscription(pattern, (data) => handled.push(data));
      return { ...vue.useEvents(pattern, { limit: 2 }), connection: vue.useGateStatus() };
    });
    await gateway.welcome();
    for (const n of [1, 2, 3]) gateway.event(`a.${n}`, n, 100 + n);
    await settle();
    assert.deepEqual(made.events.value.map(({ data }) => data), [2, 3]);
    assert.deepEqual([made.status.value, made.missed.value, made.gap.value, made.error.value, made.connection.value], ["active", 0, null, null, "live"]);
    pattern.value = "b.*";
    await nextTick();
    await gateway.until(() => gateway.requests.length === 2, "both requests");
    for (const { name } of [...gateway.requests]) await gateway.answer(name);
    await settle();
    assert.deepEqual(gate.state.subscriptions, { "b.*": "active" });
    gateway.event("a.4", 4, 104);
    gateway.event("b.5", 5, 105);
    await settle();
    assert.deepEqual(made.events.value.map(({ data }) => data), [5]);
    assert.deepEqual(handled, [1, 2, 3, 5]);
    scope.stop();
    await gateway.answer("unsubscribe");
    assert.deepEqual(gate.state.subscriptions, {});
  });

  it("subscribes to nothing without a pattern, or while it is not enabled", async () => {
    const { gateway, gate } = begin();
    const [pattern, options] = [ref(null), ref({ enabled: false })];
    const handled = [];
    const { scope, made } = scoped(gate, () => {
      vue.useSubscription(pattern, (data) => handled.push(data), options);
      return vue.useEvents(pattern, () => ({ enabled: options.value.enabled }));
    });
    await gateway.letIn();
    pattern.value = "a";
    await nextTick();
    await settle();
    assert.deepEqual([gate.state.subscriptions, made.status.value], [{}, "idle"]);
    options.value.enabled = true;
    await nextTick();
    await gateway.answer("subscribe");
    await settle();
    gateway.event("a", 1, 101);
    assert.deepEqual([made.status.value, handled], ["active", [1]]);
    pattern.value = null;
    await nextTick();
    assert.equal((await gateway.answer("unsubscribe")).pattern, "a");
    scope.stop();
  });

  it("subscribes when a component is mounted, until the scope ends, which may outlive the component", async () => {
    const { gateway, gate } = begin();
    const scope = effectScope(true);
    const handled = [];
    let made;
    const none = () => {};
    const parts = { createElement: () => ({}), createText: () => ({}), createComment: () => ({}), setText: none, setElementText: none, insert: none, remove: none, patchProp: none, parentNode: () => null, nextSibling: () => null };
    const app = createRenderer(parts).createApp({
      setup() {
        vue.useSubscription("own.*", none);
        // A store of Pinia, made by the first component that uses it.
        scope.run(() => {
          vue.useSubscription("a.*", (data) => handled.push(data));
          made = vue.useEvents("a.*");
        });
        assert.deepEqual(gate.state.subscriptions, {});
        return () => h("p");
      },
    });
    app.use(vue.gatePlugin, gate).mount({});
    await gateway.letIn();
    gateway.event("a.1", 1, 101);
    app.unmount();
    assert.equal((await gateway.answer("unsubscribe")).pattern, "own.*");
    gateway.event("a.2", 2, 102);
    await settle();
    assert.deepEqual([handled, made.events.value.map(({ data }) => data)], [[1, 2], [1, 2]]);
    scope.stop();
    assert.equal((await gateway.answer("unsubscribe")).pattern, "a.*");
  });

  it("is in a topic while its scope lives, and says another meta in the same room", async () => {
    const { gateway, gate } = begin();
    const topic = ref("rooms.7");
    const meta = ref(1);
    const scope = effectScope();
    const app = createSSRApp({});
    app.use(vue.gatePlugin, gate);
    const there = app.runWithContext(() => scope.run(() => vue.usePresence(topic, () => ({ meta: meta.value }))));
    await gateway.letIn();
    assert.equal((await gateway.answer("presence", part("rooms.7"))).meta, 1);
    await settle();
    assert.deepEqual([there.status.value, there.members.value[0].user], ["live", "ann"]);
    meta.value = 2;
    await nextTick();
    assert.deepEqual(await gateway.answer("presence", part("rooms.7")), { topic: "rooms.7", act: "enter", meta: 2 });
    await settle();
    topic.value = "rooms.8";
    await nextTick();
    await settle();
    const moved = [await gateway.answer("presence"), await gateway.answer("presence", part("rooms.8"))];
    assert.deepEqual(moved.map(({ topic: of, act: did }) => [of, did]), [["rooms.7", "leave"], ["rooms.8", "enter"]]);
    await settle();
    scope.stop();
    await settle();
    assert.deepEqual(await gateway.answer("presence"), { topic: "rooms.8", act: "leave" });
  });

  it("does not enter where it only watches, whatever its meta is, and enters on update", async () => {
    const { gateway, gate } = begin();
    const options = ref({ enter: false, meta: 1 });
    const { scope, made } = scoped(gate, () => vue.usePresence("rooms.7", options));
    await gateway.letIn();
    assert.deepEqual(await gateway.answer("presence", part("rooms.7")), { topic: "rooms.7", act: "watch" });
    await settle();
    options.value = { enter: false, meta: 2 };
    await nextTick();
    await settle();
    assert.deepEqual(gateway.requests, []);
    made.update("here");
    assert.deepEqual(await gateway.answer("presence", part("rooms.7")), { topic: "rooms.7", act: "enter", meta: "here" });
    scope.stop();
  });

  it("is in no topic while there is none, or it is not enabled, and says why it is refused", async () => {
    const { gateway, gate } = begin();
    const [topic, enabled] = [ref(null), ref(true)];
    const { scope, made } = scoped(gate, () => vue.usePresence(topic, () => ({ enabled: enabled.value })));
    await gateway.letIn();
    assert.deepEqual([made.status.value, made.members.value, gateway.requests], ["waiting", [], []]);
    topic.value = "rooms.7";
    await nextTick();
    await settle();
    await gateway.answer("presence", { ok: false, error: { code: "forbidden", message: "no", retry: false } });
    await settle();
    assert.deepEqual([made.status.value, made.error.value.code], ["refused", "forbidden"]);
    enabled.value = false;
    await nextTick();
    await settle();
    assert.deepEqual([made.status.value, made.error.value], ["waiting", null]);
    scope.stop();
  });

  it("keeps a collection live, and loads it again on reload", async () => {
    const { gateway, gate } = begin();
    const answers = [[{ id: 1 }], [{ id: 1 }], []];
    const { scope, made } = scoped(gate, () => vue.useLiveCollection("orders", { load: () => answers.shift() }));
    await gateway.letIn();
    gateway.event("orders.2.created", {}, 101);
    await settle();
    assert.deepEqual(made.items.value.map(({ id }) => id), [1, "2"]);
    assert.equal(made.status.value, "current");
    made.reload();
    await settle();
    assert.deepEqual([made.items.value, made.error.value, made.dropped.value], [[], null, 0]);
    scope.stop();
  });

  it("says that no gate was provided", () => {
    assert.throws(() => createSSRApp({}).runWithContext(() => vue.useGate()), /no gate was provided/);
  });
});

describe("headgate/svelte", () => {
  it("keeps the contract of Svelte's stores: the value at once, then each new one", async () => {
    const { gateway, gate } = begin();
    const values = [];
    const leave = svelte.readable(eventsStore(gate, "a.*")).subscribe(({ events, status }) => values.push([status, events.length]));
    assert.deepEqual(values, [["idle", 0]]);
    await gateway.welcome();
    gateway.event("a.1", 1, 101);
    await settle();
    assert.deepEqual(values.at(-1), ["active", 1]);
    leave();
    await gateway.answer("unsubscribe");
  });

  it("gives the present snapshot to a later subscriber, and to one that reads it once", async () => {
    const { gateway, gate } = begin();
    const status = svelte.readable(statusStore(gate));
    await gateway.letIn();
    assert.equal(get(status), "live");
  });

  it("subscribes nothing for a server, which subscribes and leaves in one turn", async () => {
    const { gateway, gate } = begin();
    await gateway.welcome();
    assert.deepEqual(get(svelte.readable(eventsStore(gate, "a.*"))).events, []);
    await settle();
    assert.deepEqual(gateway.requests, []);
  });

  it("says that it is called outside a component", () => {
    assert.throws(() => svelte.useGate(), /outside.component/);
  });
});
