/** Wrong arguments of what applications call: one error that names the argument, and never one of the engine's. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it, mock } from "node:test";
import Backbone from "backbone";
import { createElement } from "react";
import { renderToString } from "react-dom/server";
import { createSSRApp } from "vue";
import { renderToString as renderVue } from "vue/server-renderer";
import { badgeTitle, createInbox } from "#headgate/inbox";
import { checkPattern, checkPayload, checkTopic, connect, Dispatcher, events, Gate, HeadgateError, load, matches, userWord } from "#headgate";
import { LiveCollection, LiveModel, NotificationList } from "#headgate/backbone";
import { history } from "#headgate/history";
import { createOutbox } from "#headgate/offline";
import { presence } from "#headgate/presence";
import * as react from "#headgate/react";
import { request } from "#headgate/request";
import { collectionStore, eventsStore, presenceStore, statusStore } from "#headgate/store";
import * as svelte from "#headgate/svelte";
import { connect as connectTabs } from "#headgate/tabs";
import * as vue from "#headgate/vue";
import { FakeGateway } from "./fake-gateway.js";

const NO_TEXT = Object.create(null);
const f = () => {};
/** What is tried in the place of each argument, by a name. @type {Record<string, any>} */
const WRONG = {
  undefined, null: null, true: true, zero: 0, NaN: Number.NaN, negative: -1, fraction: 1.5, huge: 1e300, Infinity: Number.POSITIVE_INFINITY, bigint: 1n, symbol: Symbol("s"),
  empty: "", spaced: "a b", long: "a".repeat(300), text: "abc", list: [], "list of lists": [[]], "list of nulls": [null], "list of texts": ["a"], object: {}, "no text": NO_TEXT, function: f, date: new Date(0), aborted: AbortSignal.abort(),
};
const TEXTS = ["text"];
const ANY_TEXT = [...TEXTS, "empty", "spaced", "long"];
const OBJECTS = ["object", "no text", "date", "aborted"];
const LISTS = ["list", "list of lists", "list of nulls", "list of texts"];
const ANY = Object.keys(WRONG);
const NAMES = ["text", "spaced", ...OBJECTS];
const COUNTS = ["undefined"];
const OPTIONAL = ["undefined"];
const MAYBE = ["undefined", "null"];
const PAYLOADS = [...ANY_TEXT, "undefined", "null", "true", "zero", "negative", "fraction", "huge", ...LISTS, "object", "no text", "date"];
/** As Backbone takes them: without a callback nothing is bound, and what is not bound is not found. */
const NO_CALLBACK = ["undefined", "null", "zero", "NaN", "empty", "function"];
const FALSY = ["undefined", "null", "zero", "NaN", "empty"];

/** @type {any} */
let gate;
/** @type {any} */
let inbox;
beforeEach(() => {
  mock.method(console, "warn", f);
  mock.method(console, "error", f);
  gate = connect("http://gateway.test", { io: new FakeGateway().io, autoConnect: false });
  inbox = createInbox(gate);
});
afterEach(() => {
  gate.close();
  mock.restoreAll();
});

const page = { title: "" };
const open = (/** @type {any} */ url, /** @type {any} */ options) => connect(url, { autoConnect: false, ...options }).close();
const inReact = (/** @type {() => any} */ use) => renderToString(createElement(react.GateProvider, { gate }, createElement(() => use() ?? null)));
const inVue = (/** @type {() => void} */ use) => {
  /** @type {any} */
  let thrown;
  const app = createSSRApp({ setup() { try { use(); } catch (error) { thrown = error; } return f; } });
  app.provide = app.provide.bind(app);
  app.use(vue.gatePlugin, gate);
  app.config.warnHandler = f;
  return renderVue(app).then(() => {
    if (thrown) throw thrown;
  });
};
/** Outside a component Svelte refuses what was taken. @param {() => void} use */
function inSvelte(use) {
  try {
    use();
  } catch (/** @type {any} */ error) {
    if (!/outside_component/.test(error.message)) throw error;
  }
}
const HANDLED = { reset: f, apply: f };

/**
 * Each call, with arguments that are right → each argument by its path (`2.limit`: an option of the third), with what it may be in WRONG beside.
 * @type {[name: string, call: (...given: any[]) => unknown, right: any[], tried: Record<string, string[]>][]}
 */
const CALLS = [
  ["connect", open, ["http://a.test", {}], { 0: [] }],
  ["connect", connect, ["http://a.test", { autoConnect: false }], { "1.namespace": [...OPTIONAL, ...TEXTS, "empty"], "1.token": [...MAYBE, ...ANY_TEXT, "function"], "1.reconnectDelayMinMs": [...COUNTS, "zero", "fraction"], "1.inboxLimit": COUNTS, "1.auth": [...OPTIONAL, ...OBJECTS], "1.resume": MAYBE, "1.resync": [...OPTIONAL, "function"], "1.transports": [...OPTIONAL, "list", "list of texts"], "1.path": OPTIONAL, "1.socketOptions": [...OPTIONAL, ...OBJECTS], "1.WebSocket": [...OPTIONAL, "function"], "1.transport": OPTIONAL, "1.io": [...OPTIONAL, ...OBJECTS, "function"], "1.connectTimeoutMs": [...COUNTS, "fraction"] }],
  ["new Gate", (address, options) => new Gate(address, options).close(), ["http://a.test/n", {}], { 0: [], 1: [...OPTIONAL, ...OBJECTS] }],
  ["tabs", (options) => connectTabs("http://a.test", options).close(), [{ autoConnect: false }], { "0.user": [...OPTIONAL, "text", "spaced", "long"] }],
  ["claim", (event) => connectTabs("http://a.test", { autoConnect: false }).tabs.claim(event), [{ id: "a" }], { 0: [] }],
  ["new HeadgateError", (...given) => new HeadgateError(.../** @type {[any]} */ (given)), ["refused", {}], { 1: ANY }],
  ["checkTopic", checkTopic, ["a"], { 0: TEXTS }],
  ["checkPattern", checkPattern, ["a"], { 0: TEXTS }],
  ["checkPayload", checkPayload, [1, 1000], { 0: [...ANY_TEXT, "null", "true", "zero", "negative", "fraction", "huge", ...LISTS, "object", "no text", "date"], 1: ["undefined", "fraction", "huge", "Infinity"] }],
  ["matches", matches, ["a", "b"], { 0: ANY_TEXT, 1: ANY_TEXT }],
  ["userWord", userWord, ["a"], { 0: ["text", "spaced"] }],
  ["on", (...given) => gate.on(...given), ["a", f], { 0: NAMES, 1: NO_CALLBACK, 3: [...OPTIONAL, ...OBJECTS] }],
  ["once", (...given) => gate.once(...given), ["a", f], { 0: NAMES, 1: NO_CALLBACK, 3: [...OPTIONAL, ...OBJECTS] }],
  ["Dispatcher.on", (...given) => new Dispatcher().on(.../** @type {[any]} */ (given)), ["a", f], { 0: [...NAMES, "long"], 1: NO_CALLBACK }],
  ["Dispatcher.once", (...given) => new Dispatcher().once(.../** @type {[any]} */ (given)), ["a", f], { 0: [...NAMES, "long"], 1: NO_CALLBACK }],
  ["listenTo", (...given) => new Dispatcher().listenTo(.../** @type {[any, any]} */ (given)), [new Dispatcher(), "a", f], { 0: FALSY, 1: [...NAMES, "long"], 2: NO_CALLBACK }],
  ["listenToOnce", (...given) => new Dispatcher().listenToOnce(.../** @type {[any, any]} */ (given)), [new Dispatcher(), "a", f], { 0: FALSY, 1: [...NAMES, "long"], 2: NO_CALLBACK }],
  ["off", (...given) => gate.off(...given), ["a", f], { 0: ANY, 1: ANY, 2: ANY }],
  ["stopListening", (...given) => gate.stopListening(...given), [gate, "a", f], { 0: ANY, 1: ANY, 2: ANY }],
  ["trigger", (...given) => gate.trigger(...given), ["a:b"], { 0: ANY, 1: ANY }],
  ["dispatch", (topic) => gate.dispatch(topic, 1, f), ["a"], { 0: ANY_TEXT }],
  ["subscribe", (...given) => gate.subscribe(...given), ["a", {}, () => () => {}], { 0: TEXTS, 1: [...OPTIONAL, ...OBJECTS], 2: ["function"], "1.signal": [...OPTIONAL, "aborted"], "1.overflow": OPTIONAL, "1.repair": [...OPTIONAL, "true"], "1.since": OPTIONAL }],
  ["subscribed", (...given) => gate.subscribed(...given), ["a"], { 0: TEXTS }],
  ["publish", (...given) => gate.publish(...given), ["a", 1, {}], { 0: TEXTS, 1: [...ANY_TEXT, "null", "true", "zero", "negative", "fraction", "huge", ...LISTS, "object", "no text", "date"], 2: [...OPTIONAL, ...OBJECTS], "2.id": [...OPTIONAL, ...ANY_TEXT], "2.echo": [...OPTIONAL, "true"], "2.ephemeral": [...OPTIONAL, "true"] }],
  ["seen", (...given) => gate.seen(...given), [["a"]], { 0: ["list", "list of texts"] }],
  ["replay", (...given) => gate.replay(...given), ["a", { from: 1, to: 2 }], { 0: TEXTS, 1: OBJECTS, "1.from": [...MAYBE, "zero"], "1.to": [...MAYBE, "zero"], "1.epoch": [...OPTIONAL, ...ANY_TEXT] }],
  ["refresh", (...given) => gate.refresh(...given), ["t"], { 0: [...MAYBE, ...ANY_TEXT] }],
  ["events", events, [() => gate, "a", {}], { 0: [], 1: TEXTS, 2: [...OPTIONAL, ...OBJECTS], "2.limit": COUNTS, "2.signal": [...OPTIONAL, "aborted"] }],
  ["load", load, [() => gate, "a", f, HANDLED], { 0: [], 1: TEXTS, 2: ["function"], 3: [], "3.reset": ["function"], "3.apply": ["function"], "3.changed": [...OPTIONAL, "function"], "3.signal": [...OPTIONAL, "aborted"], "3.since": OPTIONAL, "3.timeoutMs": [...OPTIONAL, "fraction"] }],
  ["history", history, [() => gate, "a", {}], { 0: [], 1: TEXTS, 2: [...OPTIONAL, ...OBJECTS], "2.limit": COUNTS, "2.before": MAYBE }],
  ["request", request, [() => gate, "a", 1, {}], { 0: [], 1: TEXTS, 3: [...OPTIONAL, ...OBJECTS], "3.signal": [...OPTIONAL, "aborted"], "3.timeoutMs": COUNTS }],
  ["presence", presence, [() => gate, "a", {}], { 0: [], 1: TEXTS, 2: [...OPTIONAL, ...OBJECTS], "2.enter": [...OPTIONAL, "true"] }],
  ["room.subscribe", (...given) => presence(gate, "a").subscribe(.../** @type {[any]} */ (given)), [f], { 0: ["function"] }],
  ["room.get", (...given) => presence(gate, "a").get(.../** @type {[any]} */ (given)), ["a"], { 0: ANY }],
  ["createOutbox", createOutbox, [() => gate, {}], { 0: [], 1: [...OPTIONAL, ...OBJECTS], "1.storage": OPTIONAL, "1.user": [...OPTIONAL, "text", "spaced", "long"], "1.maxEvents": COUNTS, "1.maxBytes": COUNTS, "1.maxAgeMs": [...OPTIONAL, "fraction"] }],
  ["outbox.discard", (...given) => createOutbox(gate).discard(.../** @type {[any]} */ (given)), [["a"]], { 0: [...MAYBE, "list", "list of texts"] }],
  ["eventsStore", eventsStore, [() => gate, "a", {}], { 0: [], 1: [...TEXTS, "null"], 2: [...OPTIONAL, ...OBJECTS], "2.limit": COUNTS, "2.enabled": [...OPTIONAL, "true"] }],
  ["collectionStore", collectionStore, [() => gate, "a", {}], { 0: [], 1: TEXTS, 2: [...OPTIONAL, ...OBJECTS], "2.initial": [...OPTIONAL, "list", "list of lists"], "2.load": [...OPTIONAL, "function"], "2.mapping": [...OPTIONAL, "function"], "2.outbox": OPTIONAL, "2.limit": COUNTS, "2.pattern": [...OPTIONAL, "text"], "2.idAttribute": [...OPTIONAL, ...ANY_TEXT] }],
  ["store.subscribe", (...given) => collectionStore(gate, "a").subscribe(.../** @type {[any]} */ (given)), [f], { 0: ["function"] }],
  ["presenceStore", presenceStore, [() => gate, "a", {}], { 0: [], 1: [...TEXTS, "null"], 2: [...OPTIONAL, ...OBJECTS], "2.enter": [...OPTIONAL, "true"] }],
  ["statusStore", statusStore, [() => gate], { 0: [] }],
  ["createInbox", createInbox, [() => gate, {}], { 0: [], 1: [...OPTIONAL, ...OBJECTS], "1.pageSize": OPTIONAL, "1.outbox": OPTIONAL }],
  ...["markRead", "markUnread", "archive"].map((name) => /** @type {any} */ ([`inbox.${name}`, (/** @type {any} */ ids) => inbox[name](ids), [["a"]], { 0: ["text", "spaced", "long", "list", "list of texts"] }])),
  ["inbox.mute", (...given) => inbox.mute(...given), ["a", ["mail"]], { 0: TEXTS, 1: OPTIONAL }],
  ["inbox.unmute", (...given) => inbox.unmute(...given), ["a"], { 0: TEXTS }],
  ["inbox.isMuted", (...given) => inbox.isMuted(...given), ["a", "mail"], { 0: TEXTS, 1: OPTIONAL }],
  ["inbox.onAlert", (...given) => inbox.onAlert(...given), [f], { 0: ["function"] }],
  ["badgeTitle", badgeTitle, [() => inbox, page], { 0: [], 1: [] }],
  ["new LiveModel", (...given) => new LiveModel(...given), [{ id: 1 }, { gate: () => gate, topic: "a" }], { "1.gate": FALSY, "1.topic": TEXTS, "1.mapping": [...MAYBE, "function"], "1.versionAttribute": [...MAYBE, ...ANY_TEXT], "1.refetch": [...OPTIONAL, "true"], "1.resyncSpreadMs": [...OPTIONAL, "zero", "fraction"] }],
  ["LiveModel.follow", (...given) => new LiveModel().follow(.../** @type {[any]} */ (given)), [() => gate, { topic: "a" }], { 0: [], 1: [], "1.mapping": [...MAYBE, "function"] }],
  ["LiveModel.setLive", (...given) => new LiveModel().setLive(.../** @type {[any, any]} */ (given)), [{}, {}], { 0: OBJECTS }],
  ["new LiveCollection", (...given) => new LiveCollection(...given), [[], { gate: () => gate, topic: "a" }], { "1.gate": FALSY, "1.topic": TEXTS, "1.pattern": [...MAYBE, ...TEXTS], "1.mapping": [...MAYBE, "function"] }],
  ["LiveCollection.follow", (...given) => new LiveCollection().follow(.../** @type {[any]} */ (given)), [() => gate, { topic: "a" }], { 0: [], 1: [] }],
  ["LiveCollection.applyLive", (...given) => new LiveCollection().applyLive(.../** @type {[any, any]} */ (given)), [{ op: "ignore" }, {}], { 0: OBJECTS }],
  ["new NotificationList", (...given) => new NotificationList(.../** @type {[any, any]} */ (given)), [[], { inbox: () => inbox }], { "1.inbox": [] }],
  ["react.GateProvider", (props) => renderToString(createElement(react.GateProvider, props)), [{ url: "http://a.test" }], { "0.gate": OPTIONAL, "0.options": [...OPTIONAL, ...OBJECTS], "0.url": OPTIONAL }],
  ["react.useEvents", (...given) => inReact(() => void react.useEvents(...given)), ["a", {}], { 0: [...TEXTS, "null"], 1: [...OPTIONAL, ...OBJECTS], "1.select": [...OPTIONAL, "function"], "1.limit": COUNTS }],
  ["react.useSubscription", (...given) => inReact(() => void react.useSubscription(...given)), ["a", f, {}], { 0: ANY, 1: ["function"], 2: [...OPTIONAL, ...OBJECTS] }],
  ["react.useLiveCollection", (...given) => inReact(() => void react.useLiveCollection(...given)), ["a", {}], { 0: TEXTS, 1: [...OPTIONAL, ...OBJECTS], "1.load": [...OPTIONAL, "function"], "1.mapping": [...OPTIONAL, "function"], "1.limit": COUNTS, "1.outbox": OPTIONAL }],
  ["react.usePresence", (...given) => inReact(() => void react.usePresence(...given)), ["a", {}], { 0: [...TEXTS, "null"], 1: [...OPTIONAL, ...OBJECTS] }],
  ["react.useInbox", (...given) => inReact(() => void react.useInbox(...given)), [() => inbox], { 0: [] }],
  ["vue.useEvents", (...given) => inVue(() => vue.useEvents(...given)), ["a", {}], { 0: [...TEXTS, "null"], 1: [...OPTIONAL, ...OBJECTS, "function"] }],
  ["react.usePresence", (...given) => inReact(() => void react.usePresence(...given)), ["a", {}], { "1.meta": PAYLOADS }],
  ["vue.usePresence", (...given) => inVue(() => vue.usePresence(...given)), ["a", {}], { "1.meta": PAYLOADS }],
  ["presence", presence, [() => gate, "a", {}], { "2.meta": PAYLOADS }],
  ["vue.useSubscription", (...given) => inVue(() => vue.useSubscription(...given)), ["a", f, {}], { 1: ["function"] }],
  ["vue.useInbox", (...given) => inVue(() => vue.useInbox(...given)), [() => inbox], { 0: [] }],
  ["vue.provideGate", (...given) => inVue(() => vue.provideGate(...given)), [() => gate], { 0: OPTIONAL }],
  ["vue.gatePlugin", (...given) => vue.gatePlugin.install({ provide: f }, ...given), [() => gate], { 0: [] }],
  ["svelte.useSubscription", (...given) => inSvelte(() => svelte.useSubscription(...given)), ["a", f, {}], { 1: ["function"], 2: [...OPTIONAL, ...OBJECTS] }],
  ["svelte.readable", (...given) => svelte.readable(...given), [() => inbox], { 0: [] }],
];

/** Return a copy of arguments with one of them, or an option of one, changed; those that need a gate are made now. @param {any[]} right @param {string} path @param {any} value */
function changed(right, path, value) {
  const [nth, name] = path.split(".");
  const made = (/** @type {any} */ each) => (typeof each === "function" && each !== f ? each() : each);
  const given = right.map((each) => (each && Object.getPrototypeOf(each) === Object.prototype && each !== page ? Object.fromEntries(Object.entries(each).map(([key, of]) => [key, made(of)])) : made(each)));
  if (name === undefined) given[Number(nth)] = value;
  else given[Number(nth)][name] = value;
  return given;
}

/** Errors of a request that began: the gate has no connection. */
const BEGAN = ["disconnected", "closed", "timeout"];

describe("wrong arguments", () => {
  for (const [name, call, right, tried] of CALLS) {
    it(`are refused by name, and right ones taken: ${name}`, async () => {
      for (const [path, allowed] of Object.entries(tried)) {
        for (const [kind, value] of Object.entries(WRONG)) {
          const what = `${name}, ${path}: ${kind}`;
          /** @type {any} */
          let error;
          try {
            const result = /** @type {any} */ (call(...changed(right, path, value)));
            // One that waits for a connection has taken its arguments.
            await Promise.race([result, new Promise((resolve) => setImmediate(() => setImmediate(resolve)))]);
          } catch (fault) {
            error = fault;
          }
          if (error && (BEGAN.includes(error.code) || error.name === "AbortError")) error = undefined;
          const isOurs = error instanceof HeadgateError || /^headgate: .+ must be .+, not |^NotificationList: inbox must be|^headgate: this page has no/.test(error?.message);
          if (error) assert.ok(isOurs, `${what}: ${error.stack}`);
          if (kind === "aborted" && allowed.includes(kind)) continue;
          assert.equal(Boolean(error), !allowed.includes(kind), `${what}: ${error ?? "taken"}`);
        }
      }
    });
  }

  it("leave Backbone as it is", () => assert.ok(new LiveModel() instanceof Backbone.Model));
});
