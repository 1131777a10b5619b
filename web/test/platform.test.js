/**
 * The client's needs of its platform: every global that the sources read, and the effect of its absence.
 *
 * The list is read from the sources, so a new global in them must be put into one of the tables here.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { afterEach, describe, it, mock } from "node:test";
import vm from "node:vm";
import ts from "typescript";
import { connect } from "#headgate";
import { createOutbox } from "#headgate/offline";
import { connect as connectTabs } from "#headgate/tabs";

/** Without one of these, or with one that throws, everything works, but for the exceptions here. */
const FALLS_BACK = {
  BroadcastChannel: "tabs do not share; an outbox is in memory",
  MessageChannel: "messages wait for a timer",
  TextDecoder: "over HTTP the page polls",
  WebSocket: "a stream over HTTP",
  addEventListener: "sleep is noticed, and nothing else of the page's life",
  atob: "tokens are not refreshed before they expire; tabs of one user share by the option user",
  crypto: "ids of events are random as Math.random is",
  document: "the page counts as seen; there is no debug log; the script tag's files are found by the page's address",
  fetch: "a failed WebSocket has no other reason",
  indexedDB: "an outbox is in memory",
  localStorage: "there is no debug log",
  location: "connect() needs an address",
  navigator: "tabs do not share; an outbox is in memory",
  origin: "an error does not name the origin that may not be allowed",
  process: "the short texts of errors",
  reportError: "console.error",
  setImmediate: "MessageChannel",
};
/** Every browser since 2020, Node, jsdom and workers have these, and `console`, which V8 has too. */
const NEEDED = ["AbortController", "Blob", "URL", "clearTimeout", "performance", "queueMicrotask", "setTimeout"];
/** Of the build, and of the script that it makes. */
const NOT_OF_THE_PLATFORM = ["HEADGATE_DOCS", "headgate", "io", "require"];

/** Return the globals that the sources read, but for those of ECMAScript. */
function globalsOfSources() {
  const language = new Set(vm.runInNewContext("Object.getOwnPropertyNames(globalThis)").concat("undefined", "arguments", "globalThis"));
  const found = new Set();
  for (const name of readdirSync(new URL("../src/", import.meta.url), { recursive: true, encoding: "utf8" }).filter((each) => each.endsWith(".js"))) {
    const source = ts.createSourceFile(name, readFileSync(new URL(`../src/${name}`, import.meta.url), "utf8"), ts.ScriptTarget.ES2022, true, ts.ScriptKind.JS);
    const [declared, read] = [new Set(), new Set()];
    const visit = (node) => {
      const { parent } = node;
      if (ts.isIdentifier(node)) {
        if (ts.isPropertyAccessExpression(parent) && parent.name === node) {
          if (/^\(?(\/\*.*\*\/ )?\(?globalThis\)*$/.test(parent.expression.getText())) read.add(node.text);
        } else if (ts.isBindingElement(parent) && parent.propertyName === node) {
          if (parent.parent.parent.initializer?.getText() === "globalThis") found.add(node.text);
        } else if ("name" in parent && parent.name === node && !ts.isShorthandPropertyAssignment(parent)) declared.add(node.text);
        else if (!(ts.isPropertyAssignment(parent) && parent.name === node) && !ts.isLabeledStatement(parent) && !ts.isImportSpecifier(parent) && !ts.isExportSpecifier(parent)) read.add(node.text);
      }
      ts.forEachChild(node, visit);
    };
    visit(source);
    for (const each of read) if (!declared.has(each) && !language.has(each)) found.add(each);
    // Declared here under the same name as the global that it is taken from.
    for (const [, each] of source.text.matchAll(/globalThis\)?\??\.(\w+)/g)) found.add(each);
    for (const [, names] of source.text.matchAll(/const \{ ([\w, ]+) \} = globalThis;/g)) for (const each of names.split(", ")) found.add(each);
  }
  return [...found].sort();
}

class Socket {
  constructor() {
    this.sent = [];
    setTimeout(() => this.says('0{"sid":"x","upgrades":[],"pingInterval":25000,"pingTimeout":20000,"maxPayload":2000}'));
  }

  send(text) {
    if (text.startsWith("40")) {
      this.says('40/notifications,{"sid":"y"}');
      const { subscriptions } = JSON.parse(text.slice(text.indexOf("{")));
      this.message("welcome", { session: "s", user: "ana", epoch: "e", offset: 100, resumed: null, limits: {}, subscriptions: subscriptions.map(({ pattern }) => ({ pattern, ok: true })) });
      this.message("event", "orders.42", 7, { id: "i", time: 1, offset: 101 });
    } else if (text.includes('"publish"')) {
      const [id] = text.match(/(?<=,)\d+(?=\[)/);
      setTimeout(() => this.says(`43/notifications,${id}[{"ok":true,"epoch":"e","offset":102}]`));
    }
  }

  message(...message) {
    this.says(`42/notifications,${JSON.stringify(message)}`);
  }

  says(data) {
    this.onmessage({ data });
  }

  close() {}
}

/** Put something in the place of a global until the end of the test. */
const changed = [];
function replace(name, descriptor) {
  changed.push([name, Object.getOwnPropertyDescriptor(globalThis, name)]);
  Reflect.deleteProperty(globalThis, name);
  if (descriptor) Object.defineProperty(globalThis, name, { configurable: true, ...descriptor });
}

afterEach(() => {
  for (const [name, descriptor] of changed.splice(0).reverse()) {
    Reflect.deleteProperty(globalThis, name);
    if (descriptor) Object.defineProperty(globalThis, name, descriptor);
  }
  mock.restoreAll();
});

/** An IndexedDB that opens. */
const INDEXED_DB = {
  open() {
    const request = { result: {}, onsuccess() {} };
    setTimeout(() => request.onsuccess());
    return request;
  },
};

/** Connect, get an event, publish, close. */
async function live(open, storage) {
  mock.method(console, "info", () => {});
  const gate = open("https://gateway.test", { WebSocket: Socket, token: "h.e30.s" });
  const got = new Promise((resolve) => gate.on("orders.#", resolve));
  assert.equal(await got, 7);
  assert.equal((await gate.publish("orders.42", 8)).offset, 102);
  const outbox = createOutbox(gate, storage);
  assert.equal((await outbox.publish("orders.42", 9, { id: "mine" })).offset, 102);
  gate.close();
  assert.equal(gate.status, "closed");
}

it("connects where a URL has no setters, as in React Native", async () => {
  class ReadOnlyUrl {
    constructor(text) {
      this.href = new NativeUrl(text).href;
      Object.freeze(this);
    }
  }
  const NativeUrl = URL;
  for (const name of ["host", "origin", "pathname", "protocol"]) Object.defineProperty(ReadOnlyUrl.prototype, name, { get() { return new NativeUrl(this.href)[name]; } });
  replace("URL", { value: ReadOnlyUrl });
  await live(connect);
});

it("the globals that the sources read are the ones that are listed", () => {
  const listed = [...Object.keys(FALLS_BACK), ...NEEDED, ...NOT_OF_THE_PLATFORM];
  const read = globalsOfSources();
  assert.deepEqual([read.filter((name) => !listed.includes(name)), listed.filter((name) => !read.includes(name))], [[], []]);
});

describe("a platform without", () => {
  const throws = () => {
    throw new DOMException("not here", "SecurityError");
  };
  for (const name of Object.keys(FALLS_BACK).filter((each) => each !== "process")) {
    it(`${name}: ${FALLS_BACK[name]}`, async () => {
      // Node has it, and uses it before anything else.
      if (name === "MessageChannel") replace("setImmediate");
      replace(name);
      await live(connect);
      await live(connectTabs);
    });
  }

  for (const name of ["BroadcastChannel", "MessageChannel", "atob", "fetch"]) {
    it(`${name} that does not throw`, async () => {
      if (name === "MessageChannel") replace("setImmediate");
      replace("navigator", { value: { locks: { request: async () => {}, query: async () => ({}) } } });
      replace(name, { value: class { constructor() { throws(); } } });
      await live(connect);
      if (name === "BroadcastChannel") await live(connectTabs);
    });
  }

  it("Web Locks that may be read: a page without an origin", async () => {
    replace("navigator", { value: Object.defineProperty({}, "locks", { get: throws }) });
    await live(connectTabs);
  });

  it("Web Locks that are granted: the tab has a separate connection", async () => {
    const locks = { request: () => Promise.reject(new DOMException("not here", "SecurityError")), query: async () => ({}) };
    replace("navigator", { value: { locks } });
    // It waits for a tab that leads before it connects by itself.
    await live(connectTabs);
  });

  const locks = { request: async (_name, act) => act(), query: async () => ({}) };
  /** @type {Record<string, Record<string, PropertyDescriptor | undefined>>} */
  const DENIED = {
    "no IndexedDB": { indexedDB: undefined, navigator: { value: { locks } } },
    "an IndexedDB that throws": { indexedDB: { get: throws }, navigator: { value: { locks } } },
    "no Web Locks": { indexedDB: { value: INDEXED_DB }, navigator: { value: {} } },
    "Web Locks that are denied": { indexedDB: { value: INDEXED_DB }, navigator: { value: { locks: { ...locks, request: async () => throws() } } } },
    // Firefox, in a frame of another site.
    "Web Locks that are not listed": { indexedDB: { value: INDEXED_DB }, navigator: { value: { locks: { ...locks, query: async () => throws() } } } },
    "no BroadcastChannel": { indexedDB: { value: INDEXED_DB }, navigator: { value: { locks } }, BroadcastChannel: { value: class { constructor() { throws(); } } } },
  };
  for (const [what, globals] of Object.entries(DENIED)) {
    it(`storage, by ${what}: an outbox in IndexedDB is in memory, and says so once`, async () => {
      for (const [name, descriptor] of Object.entries(globals)) replace(name, descriptor);
      const warned = mock.method(console, "warn", () => {});
      await live(connect, { storage: "indexeddb", user: "ana" });
      assert.equal(warned.mock.calls.filter(({ arguments: [text] }) => /the outbox ends with this page: /.test(text)).length, 1);
    });
  }

  it("AbortController: a gate cannot be made, and the error names it", () => {
    replace("AbortController");
    assert.throws(() => connect("https://gateway.test", { WebSocket: Socket }), { name: "ReferenceError", message: /AbortController/ });
  });
});

it("a page may have added to the prototype of all objects, and frozen those of the language", () => {
  const page = vm.createContext({ URL });
  vm.runInContext("Object.prototype.extra = 1; for (const { prototype } of [Object, Array, Function, Error]) Object.freeze(prototype);", page);
  vm.runInContext(readFileSync(new URL("../dist/headgate.global.min.js", import.meta.url), "utf8"), page);
  assert.equal(vm.runInContext("new headgate.HeadgateError('closed').name", page), "HeadgateError");
});
