/**
 * The package as it is built: as an application gets it by `import`, by `require` and by a script tag. Needs `npm run build`.
 *
 * The other tests import `#headgate`: the package as it is built, or its sources (`npm run test:source`), which are easier to debug.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cp, mkdir, mkdtemp, readdir, readFile, rm, stat } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, describe, it, mock } from "node:test";
import { fileURLToPath } from "node:url";
import vm from "node:vm";
import { Worker } from "node:worker_threads";
import Backbone from "backbone";
import { build, transform } from "esbuild";
import * as source from "../src/index.js";
import { FakeGateway, settle } from "./fake-gateway.js";

const require = createRequire(import.meta.url);
const NAMES = Object.keys(source).sort();
const WEB = fileURLToPath(new URL("..", import.meta.url));
const MORE = ["LiveCollection", "LiveModel", "NotificationList", "badgeTitle", "createInbox"];

/** The most bytes of the tarball. */
const MOST_PACKED = 280_000;
/** Files for pages without a bundler, and those that a page loads only when it needs them. */
const MINIFIED = new Set(["global.min", "http", "debug", "socket.io", "development"].map((name) => `dist/headgate.${name}.js`));

/** The script tag's file. */
const SCRIPT = "headgate.global.min.js";

/** A program of the workspace. npx takes a second of a processor to find it. @param {string} name */
const installed = (name) => join(WEB, "../node_modules/.bin", name);

/** The runners of applications' tests, each with its file in runners/; docs/support.md names them. `make nightly` runs those that are not Node's. @type {Record<string, (folder: string) => string[]>} */
const RUNNERS = {
  "jest with jsdom": (folder) => {
    const config = { rootDir: folder, testEnvironment: "jsdom", testMatch: ["**/jest.cjs"], transform: {}, cache: false, watchman: false };
    return [installed("jest"), "--ci", "--runInBand", "--config", JSON.stringify(config)];
  },
  "vitest with jsdom and with happy-dom": (folder) => [installed("vitest"), "run", "--root", folder],
  // This one is a test of Node's too, and would report to it.
  "node --test": (folder) => ["-u", "NODE_TEST_CONTEXT", "node", "--test", join(folder, "node.mjs")],
  "node --test with happy-dom": (folder) => ["-u", "NODE_TEST_CONTEXT", "PAGE=happy-dom", "node", "--test", join(folder, "node.mjs")],
};

/** Run a program, and return its output. @param {string} command @param {string[]} words */
const run = (command, ...words) =>
  execFileSync(command, words, { cwd: WEB, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, npm_config_loglevel: "error" } });

/** Run a script-tag build in a separate page. */
async function inPage(file, globals = {}) {
  const code = await readFile(new URL(`../dist/${file}`, import.meta.url), "utf8");
  const page = { setTimeout, clearTimeout, queueMicrotask, MessageChannel, TextEncoder, performance, URL, console, AbortController, ...globals };
  page.self = page;
  // It loads the file beside it.
  page.location = { href: new URL(`../dist/${file}`, import.meta.url).href };
  vm.runInNewContext(code, page, { importModuleDynamically: vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER });
  return page;
}

/** The short suite of every form: an event, a loop, models with ids that are names of every object or Backbone's own. */
const WORKS = {
  "gives its handlers events, and its loops": async ({ connect, events }) => {
    const gateway = new FakeGateway();
    const gate = connect("http://gateway.test", { io: gateway.io });
    const got = new Promise((resolve) => gate.on("a.*", resolve));
    await gateway.welcome();
    gateway.event("a.b", 7, 101);
    assert.equal(await got, 7);
    const next = events(gate, "a.#").next();
    gateway.event("a.c", 8, 102);
    assert.equal((await next).value.data, 8);
    gate.close();
  },

  "takes any id": async ({ connect, LiveCollection, LiveModel }) => {
    const reported = mock.method(console, "error", () => {});
    const ids = ["constructor", "__proto__", "hasOwnProperty", "toString", "_byId", "_reset", "undefined", "c1"];
    const gateway = new FakeGateway();
    const gate = connect("http://gateway.test", { io: gateway.io });
    const orders = new LiveCollection([], { gate, topic: "orders" });
    const models = ids.map((id) => new LiveModel({ id }, { gate, topic: "orders" }));
    await gateway.welcome();
    let offset = 100;
    for (const verb of ["created", "updated"]) {
      for (const id of ids) gateway.event(`orders.${id}.${verb}`, { verb, toString: 1 }, ++offset, { id: verb === "created" ? id : `second ${id}` });
    }
    assert.deepEqual(Array.from(orders.models, ({ id, attributes }) => [id, attributes.verb]), ids.map((id) => [id, "updated"]));
    assert.deepEqual(models.map((model) => model.get("verb")), ids.map(() => "updated"));
    assert.deepEqual(ids.filter((id) => orders.get(id)?.id !== id), []);
    for (const id of ids) gateway.event(`orders.${id}.deleted`, null, ++offset);
    assert.equal(orders.length, 0);
    assert.equal(reported.mock.callCount(), 0);
    gate.close();
  },

  "fetches again what it fetched before it was subscribed": async ({ connect, LiveCollection }) => {
    const gateway = new FakeGateway();
    const gate = connect("http://gateway.test", { io: gateway.io });
    const answers = [[{ id: 1 }], [{ id: 1 }, { id: 2 }]];
    const orders = new LiveCollection([], { gate, topic: "orders" });
    orders.sync = (_method, _collection, { success }) => success(answers.shift());
    orders.fetch();
    assert.equal(orders.length, 1);
    await gateway.welcome();
    await settle();
    assert.equal(orders.length, 2);
    gate.close();
  },

  "has one class of errors": ({ connect, HeadgateError, LiveModel }) => {
    const gate = connect("http://gateway.test", { autoConnect: false });
    assert.throws(() => new LiveModel({ id: "a b" }, { gate, topic: "orders" }), (error) => error instanceof HeadgateError && error.code === "invalid_pattern");
    gate.close();
  },
};

/** @type {Record<string, () => Promise<any>>} */
const FORMS = {
  import: async () => ({ ...(await import("headgate")), ...(await import("headgate/backbone")), ...(await import("headgate/inbox")) }),
  require: async () => ({ ...require("headgate"), ...require("headgate/backbone"), ...require("headgate/inbox") }),
  [SCRIPT]: async () => (await inPage(SCRIPT, { Backbone })).headgate,
};

// On the sources there is nothing to see here.
describe("the built package", { skip: !import.meta.resolve("#headgate").includes("/dist/") }, () => {
  /** The package as it would be published, in a separate folder. */
  let packedInto, packed;

  before(async () => {
    packedInto = await mkdtemp(join(tmpdir(), "headgate-package-"));
    packed = join(packedInto, run("npm", "pack", "--ignore-scripts", "--silent", "--pack-destination", packedInto).trim());
  });
  after(() => rm(packedInto, { recursive: true, force: true }));
  afterEach(() => mock.restoreAll());

  it("is the package that the other tests run on", () => {
    for (const part of ["", "/backbone"]) assert.equal(import.meta.resolve(`#headgate${part}`), import.meta.resolve(`headgate${part}`));
  });

  for (const [form, load] of Object.entries(FORMS)) {
    describe(`by ${form}`, () => {
      it("exports the same names as the sources", async () => {
        assert.deepEqual(Object.keys(await load()).sort(), [...NAMES, ...MORE].sort());
      });

      for (const [title, check] of Object.entries(WORKS)) it(title, async () => check(await load()));
    });
  }

  it("keeps the names of the sources where a bundler follows, so that a stack trace can be read", async () => {
    for (const { checkPattern } of [await import("headgate"), require("headgate")]) {
      assert.throws(() => checkPattern("a b"), ({ stack }) => /\bcheckPattern\b/.test(stack));
    }
  });

  it(`is loaded by a script tag, with or without Backbone, which may come later: ${SCRIPT}`, async () => {
    const page = await inPage(SCRIPT);
    for (const name of NAMES) assert.ok(name in page.headgate, name);
    assert.throws(() => page.headgate.LiveModel, /LiveModel needs Backbone/);
    page.Backbone = Backbone;
    const order = new page.headgate.LiveModel({ id: 1 });
    assert.ok(order instanceof Backbone.Model);
    assert.ok(new page.headgate.LiveCollection([order]).get(1) === order);
  });

  it(`explains an error that waiting does not cure, an option that it does not have, and an event of Socket.IO's: ${SCRIPT}`, async () => {
    const texts = [];
    const page = await inPage(SCRIPT, { console: { ...console, warn: (text) => texts.push(text) } });
    const error = (act) => {
      try {
        act();
      } catch (fault) {
        return fault.message;
      }
    };
    page.headgate.connect("http://gateway.test", { autoConnect: false, io: () => ({ on() {}, onAny() {}, off: () => ({ offAny() {} }), disconnect() {} }), tokens: "t" }).on("connect", () => {}).close();
    const messages = [error(() => page.headgate.checkTopic("a b")), error(() => page.headgate.checkTopic("c d"))];
    for (let nth = 0; nth < 1000 && texts.length < 3; nth++) await settle();
    const option = /^headgate: connect has no option "tokens": did you mean token\?/;
    const sentence = /"a b" is not a topic: .* Name it like orders\.42\.shipped\. .*\(invalid_topic: docs\/guide\.md/;
    assert.match(messages[0], /^invalid_topic, topic: a b, reason: /);
    const event = /^headgate: "connect" is a topic here/;
    assert.deepEqual([texts.length, ...[option, sentence, event].map((each) => texts.filter((text) => each.test(text)).length)], [3, 1, 1, 1], String(texts));
  });

  it(`obeys a strict Content-Security-Policy: ${SCRIPT} makes no code from text`, async () => {
    const code = await readFile(new URL(`../dist/${SCRIPT}`, import.meta.url), "utf8");
    assert.doesNotMatch(code, /\beval\(|new Function\(/);
  });

  it("has no syntax that a browser of docs/reference/browsers.md does not know", async () => {
    const page = await readFile(new URL("../../docs/reference/browsers.md", import.meta.url), "utf8");
    const [, chrome, firefox, safari] = /Chrome and Edge (\d+), Firefox (\d+), Safari ([\d.]+)/.exec(page) ?? [];
    // esbuild takes no browser's word for these, because each has the letters of another Unicode.
    const old = { target: [`chrome${chrome}`, `firefox${firefox}`, `safari${safari}`], supported: { "regexp-unicode-property-escapes": true } };
    const dist = new URL("../dist/", import.meta.url);
    for (const name of (await readdir(dist)).filter((each) => /\.c?js$/.test(each))) {
      const code = await readFile(new URL(name, dist), "utf8");
      assert.equal((await transform(code, old)).code, (await transform(code, { target: "esnext" })).code, name);
    }
  });

  it("works in a worker, without window or document", async () => {
    const work = `
      import { parentPort } from "node:worker_threads";
      import { connect } from "headgate";
      const Silent = class { close() {} };
      const gate = connect("http://gateway.test", { WebSocket: Silent });
      gate.on("status:change", ({ status }) => parentPort.postMessage(status));
      gate.subscribe("a", () => {});
      setImmediate(() => gate.close());
    `;
    const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(work.replace('"headgate"', JSON.stringify(import.meta.resolve("headgate"))))}`));
    const statuses = [];
    worker.on("message", (status) => statuses.push(status));
    assert.equal(await new Promise((resolve, reject) => worker.once("exit", resolve).once("error", reject)), 0);
    assert.deepEqual(statuses, ["connecting", "closed"]);
  });

  it("has its sentences in a development build, and not a word of them in production", async () => {
    const page = async (/** @type {Record<string, string>} */ define) => {
      const { outputFiles } = await build({
        stdin: { contents: 'import * as all from "headgate"; import * as live from "headgate/backbone"; import * as tabs from "headgate/tabs"; window.all = [all, live, tabs];', resolveDir: WEB }, tsconfigRaw: {}, bundle: true, format: "esm", write: false, external: ["socket.io-client", "backbone"], define,
      });
      return outputFiles[0].text;
    };
    const sentence = /is not a topic|did you mean|sign-in\.md|Leave the member out/;
    assert.match(await page({ "process.env.NODE_ENV": '"development"' }), sentence);
    assert.doesNotMatch(await page({ "process.env.NODE_ENV": '"production"' }), sentence);
  });

  it("keeps socket.io-client out of what a page loads, in a build with chunks", async () => {
    const { metafile } = await build({
      stdin: { contents: 'import { connect } from "headgate"; connect();', resolveDir: WEB }, bundle: true, splitting: true, format: "esm", outdir: "out", write: false, metafile: true,
    });
    const outputs = Object.values(metafile.outputs);
    const page = outputs.find(({ entryPoint }) => entryPoint === "<stdin>");
    const loaded = new Set([page]);
    for (const { imports } of loaded) for (const { path, kind } of imports) if (kind === "import-statement") loaded.add(metafile.outputs[path]);
    const holds = ({ inputs }) => Object.keys(inputs).some((path) => path.includes("node_modules/socket.io-client/"));
    assert.deepEqual([...loaded].filter(holds), []);
    assert.equal(page.imports.filter(({ kind }) => kind === "dynamic-import").length, 4, "the transport over HTTP, the one by it, itself, and the debug log");
    assert.equal(outputs.filter(holds).length, 1);
  });

  it("hands out errors of one class, whichever part makes them", async () => {
    for (const part of ["history", "request", "inbox", "offline", "presence", "store", "live-collection", "notification-list", "http"]) {
      assert.doesNotMatch(await readFile(new URL(`../dist/headgate.${part}.js`, import.meta.url), "utf8"), /HeadgateError (extends|= class)/, part);
    }
  });

  it("leaves out of a page what the page does not import", async () => {
    const page = async (/** @type {string} */ source) => {
      const { metafile, outputFiles } = await build({
        stdin: { contents: source, resolveDir: WEB }, tsconfigRaw: {}, bundle: true, format: "esm", write: false, metafile: true, external: ["socket.io-client", "backbone"],
      });
      const [{ inputs }] = Object.values(metafile.outputs);
      return { text: outputFiles[0].text, files: Object.keys(inputs).filter((path) => inputs[path].bytesInOutput).map((path) => path.split("/").at(-1)) };
    };
    const plain = await page('import { connect } from "headgate"; connect();');
    assert.doesNotMatch(plain.text, /asyncIterator|LiveModel/);
    assert.match((await page('import { connect, events } from "headgate"; events(connect(), "a");')).text, /asyncIterator/);
    const { files } = await page('import { NotificationList } from "headgate/backbone"; console.log(NotificationList);');
    assert.ok(files.includes("headgate.notification-list.js") && !files.includes("headgate.live-collection.js"), String(files));
  });

  it("continues at a step that a table of states does not have, where the sources throw", async () => {
    for (const file of ["headgate.js", "headgate.cjs", "headgate.global.min.js"]) {
      const code = await readFile(new URL(`../dist/${file}`, import.meta.url), "utf8");
      assert.match(code, /"catch_up"|"planned"|restart:"requested"/, file);
      assert.doesNotMatch(code, /no step|STRICT/, file);
    }
  });

  it("says the truth about its types and formats, as publint and arethetypeswrong see it", { skip: !process.env.HEADGATE_NIGHTLY }, () => {
    run(installed("publint"), "--strict", packed);
    // The script-tag file is for pages, not for TypeScript.
    run(installed("attw"), packed, "--profile", "strict", "--no-definitely-typed", "--exclude-entrypoints", "./global");
  });

  it("holds no source map, no source and no line that fills a terminal", async () => {
    assert.ok((await stat(packed)).size < MOST_PACKED, `${(await stat(packed)).size} bytes`);
    const files = run("tar", "-tzf", packed).trim().split("\n").map((name) => name.replace(/^package\//, ""));
    assert.deepEqual(files.filter((name) => name.endsWith(".map") || name.startsWith("src/")), []);
    for (const name of files.filter((name) => /^dist\/[^/]*\.(js|cjs)$/.test(name) && !MINIFIED.has(name))) {
      const lines = (await readFile(join(WEB, name), "utf8")).split("\n");
      assert.ok(lines.every((line) => line.length < 1000), name);
    }
  });

  describe("works in the tests of an application", () => {
    /** In the workspace, for the packages beside it; the package is the packed one. */
    let folder;

    before(async () => {
      await mkdir(join(WEB, "../build"), { recursive: true });
      folder = await mkdtemp(join(WEB, "../build/runners-"));
      await mkdir(join(folder, "node_modules/headgate"), { recursive: true });
      run("tar", "-xzf", packed, "-C", join(folder, "node_modules/headgate"), "--strip-components=1");
      await cp(new URL("runners/", import.meta.url), folder, { recursive: true });
    });
    after(() => rm(folder, { recursive: true, force: true }));

    for (const [runner, words] of Object.entries(RUNNERS)) it(`under ${runner}`, { skip: !runner.startsWith("node") && !process.env.HEADGATE_NIGHTLY }, () => run("env", ...words(folder)));
  });

  it("is under a name that package.json and the gateway agree on", async () => {
    const { version } = JSON.parse(await readFile(new URL("../package.json", import.meta.url), "utf8"));
    const python = await readFile(new URL("../../gateway/headgate/installation.py", import.meta.url), "utf8");
    assert.match(python, new RegExp(`__version__ = "${version.replaceAll(".", "\\.")}"`));
  });
});
