/**
 * Builds the npm package `headgate`: bundles by esbuild, and the declarations of types/. Prints sizes, and fails if one is above its limit.
 *
 * In: src/ and types/. Out: dist/ with ESM and CommonJS, which import socket.io-client, its transport and Backbone; a script-tag file, which takes Backbone
 * from the page and loads the other files when it needs them; copies of the script-tag files in gateway/headgate/static, where the Flask extension serves
 * them, compressed too; the pages that pages.mjs builds from dist.
 *
 * Statements with the label STRICT throw at a bug of this package that a page survives. The build drops them.
 *
 * No property is renamed in any file, because Backbone and applications have names that begin with an underscore too. Modules are not minified, so that a
 * stack trace reads like the source. The page's own bundler minifies them.
 */
import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { minify as terser } from "terser";
import { buildPage } from "./pages.mjs";

const WEB = dirname(fileURLToPath(import.meta.url));
const DIST = resolve(WEB, "dist");
const STATIC = resolve(WEB, "../gateway/headgate/static");
/** Files of dist that the gateway serves, by their names there. */
const SERVED = { "headgate.js": "headgate.global.min.js", "headgate.http.js": "headgate.http.js", "headgate.debug.js": "headgate.debug.js", "headgate.socket.io.js": "headgate.socket.io.js", "headgate.development.js": "headgate.development.js" };

/** The most bytes, gzip, that a page may load (docs/decisions/0025-the-weight-of-a-page.md). */
const MOST = { connect: 17_915, terser: 17_030, everything: 45_765, backbone: 23_049, script: 26_785 };
/** The most bytes, gzip, of the console's script and style sheet. The library of its charts is half of them. */
const MOST_CONSOLE = 64_480;
/** The most bytes, gzip, of the transport over HTTP; socket.io-client's polling has 13 KB. */
const MOST_HTTP = 4_000;
/** The most bytes that an entry point adds to a page with `connect`, without the framework. */
const MOST_MORE = { store: 2_735, react: 1_195, vue: 965, svelte: 545, offline: 5_040, presence: 1_860, inbox: 2_680, history: 235, request: 275, tabs: 8_750 };

const { version, repository } = JSON.parse(await readFile(resolve(WEB, "package.json"), "utf8"));
const banner = { js: `/*! headgate ${version} | MIT */` };

/** The beginning of links in errors. Only a release knows its repository. */
const HEADGATE_DOCS = JSON.stringify(repository ? `${repository.url.replace(/^git\+|\.git$/g, "")}/blob/v${version}/docs/` : "docs/");
/** @type {import("esbuild").BuildOptions} */
const base = { absWorkingDir: WEB, bundle: true, target: "es2022", platform: "browser", logLevel: "warning", legalComments: "none", dropLabels: ["STRICT"], define: { HEADGATE_DOCS } };
/** The bundler of a page replaces this. */
const AS_WRITTEN = { "process.env.NODE_ENV": "process.env.NODE_ENV" };
/** @type {import("esbuild").BuildOptions} */
const library = { ...base, external: ["socket.io-client", "backbone", "underscore", "react", "vue", "svelte"], minifySyntax: true, define: { ...base.define, ...AS_WRITTEN } };

/** The modules of `headgate/backbone`. */
const HELPERS = ["live-collection", "notification-list"];

/** Modules that are only imported dynamically. Both formats share one file of each. */
const SOCKET_IO = "./headgate.socketio.js";
const HTTP = "./headgate.http.js";
const DEBUG = "./headgate.debug.js";

/**
 * Replace the imports of one module.
 * @param {string} source the module, below src @param {import("esbuild").OnResolveResult} result
 * @returns {import("esbuild").Plugin}
 */
const importing = (source, result) => ({
  name: `imports of ${source}`,
  setup({ onResolve }) {
    const module = resolve(WEB, "src", source);
    onResolve({ filter: /^\./ }, ({ kind, path, resolveDir }) => (kind !== "entry-point" && resolve(resolveDir, path) === module ? result : undefined));
  },
});

/** Import a module from a separate file of dist. @param {string} file @param {string} source the module, below src */
const outside = (file, source) => importing(source, { path: file, external: true });

/**
 * Options of terser. A readable file keeps its names and functions, and has the value of each constant in the place of its name. esbuild does not inline texts, nor the numbers of
 * modules that import others, which would cost a page 250 bytes.
 * @type {Record<"readable" | "minified", import("terser").MinifyOptions>}
 */
const TERSE = {
  readable: {
    module: true,
    ecma: 2020,
    mangle: false,
    compress: { defaults: false, module: true, reduce_vars: true, evaluate: true, unused: true },
    format: { beautify: true, indent_level: 2, comments: "all", preserve_annotations: true },
  },
  minified: { module: true, ecma: 2020 },
};

/** Write a file as terser returns it. @param {keyof typeof TERSE} how @returns {import("esbuild").Plugin} */
const terse = (how) => ({
  name: "terse",
  setup({ initialOptions, onEnd }) {
    initialOptions.write = false;
    onEnd(async ({ outputFiles = [] }) => {
      // A page may have added properties to the prototype of all objects.
      const plain = (/** @type {string} */ text) => text.replaceAll(/for \(var (\w+) in (\w+)\)/g, "for (var $1 of Object.keys($2))");
      for (const { path, text } of outputFiles) await writeFile(path, (await terser(plain(text), TERSE[how])).code ?? "");
    });
  },
});

/**
 * Build one file of the package. Parts import the client, the stores and the Backbone helpers from separate files, so that a page has one copy of each, and
 * its bundler drops the ones that it does not import.
 * @param {string} entry @param {"esm" | "cjs"} format @param {string} name of the file in dist @param {import("esbuild").BuildOptions} [more]
 */
function publish(entry, format, name, more = {}) {
  const ending = format === "esm" ? "js" : "cjs";
  const helpers = format === "esm" ? HELPERS.map((helper) => outside(`./headgate.${helper}.js`, `backbone/${helper}.js`)) : [];
  const clients = [outside(`./headgate.${ending}`, "index.js"), outside(`./headgate.store.${ending}`, "stores/index.js"), outside(`./headgate.presence.${ending}`, "presence/index.js")];
  const plugins = [...clients, outside(SOCKET_IO, "transport/socketio.js"), outside(HTTP, "transport/http.js"), outside(DEBUG, "debug.js"), ...helpers];
  return build({ ...library, ...more, entryPoints: [entry], format, outfile: resolve(DIST, name), plugins: [...plugins, terse("readable")] });
}

/** Parts of the package in both formats. */
const PARTS = {
  store: { entry: "stores/index.js" },
  // Marks components with hooks as the page's, for a server that renders components.
  react: { entry: "stores/react.js", banner: { js: '"use client";' } },
  vue: { entry: "stores/vue.js" },
  svelte: { entry: "stores/svelte.js" },
  offline: { entry: "offline/index.js" },
  presence: { entry: "presence/index.js" },
  inbox: { entry: "inbox/index.js" },
  history: { entry: "history.js" },
  request: { entry: "request.js" },
  tabs: { entry: "tabs/index.js" },
};

/** In a page without modules, `import Backbone from "backbone"` means the page's own. @type {import("esbuild").Plugin} */
const backboneOfThePage = {
  name: "backbone-of-the-page",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^backbone$/ }, () => ({ path: "backbone", namespace: "page" }));
    onLoad({ filter: /.*/, namespace: "page" }, () => ({ contents: "export default globalThis.Backbone" }));
  },
};

/**
 * Replace one source by another. A page without modules loads on demand from files beside the script.
 * @param {string} source @param {string} other
 */
const instead = (source, other) => importing(source, { path: resolve(WEB, "src", other) });
const SCRIPT = [backboneOfThePage, instead("transport/load-transport.js", "script-tag/load-transport.js"), instead("load-debug.js", "script-tag/load-debug.js")];

const gzip = (/** @type {Uint8Array | string} */ contents) => gzipSync(contents, { level: 9 }).length;

/**
 * Bundle a page with all the JavaScript that it loads while a WebSocket gets through, without Backbone.
 * @param {string} source of the page @param {boolean} [minify]
 */
async function bundleOf(source, minify = true) {
  const { outputFiles } = await build({
    // tsconfig.json resolves `headgate` to the sources, and a page gets the published files.
    ...base, tsconfigRaw: {}, stdin: { contents: source, resolveDir: WEB }, minify, write: false, format: "esm",
    define: { ...base.define, "process.env.NODE_ENV": '"production"' },
    external: ["socket.io-client", "backbone", SOCKET_IO, HTTP, DEBUG, "react", "vue", "svelte"],
  });
  return outputFiles[0].text;
}
const pageSize = async (/** @type {string} */ source) => gzip(await bundleOf(source));
const CONNECT = `import { connect } from "headgate"; window.gate = connect();`;
const EVERYTHING = ["backbone", "store", "offline", "presence", "inbox", "history", "request", "tabs"];

await rm(DIST, { recursive: true, force: true });
await mkdir(DIST);
/** @type {import("esbuild").BuildOptions} */
const global = { ...base, entryPoints: ["src/script-tag/global.js"], format: "iife", plugins: SCRIPT, banner };
await Promise.all([
  publish("src/index.js", "esm", "headgate.js"),
  publish("src/index.js", "cjs", "headgate.cjs"),
  publish("src/transport/socketio.js", "esm", SOCKET_IO),
  build({ ...base, entryPoints: ["src/transport/http.js"], format: "esm", outfile: resolve(DIST, HTTP), banner, plugins: [terse("minified")] }),
  build({ ...base, entryPoints: ["src/debug.js"], format: "esm", outfile: resolve(DIST, DEBUG), banner, plugins: [terse("minified")] }),
  publish("src/backbone/index.js", "esm", "headgate.backbone.js"),
  // Separate files, so that the bundler of a page drops those that the page does not import.
  build({
    ...library, entryPoints: HELPERS.map((name) => ({ in: `src/backbone/${name}.js`, out: `headgate.${name}` })), format: "esm", outdir: DIST, splitting: true,
    chunkNames: "headgate.any-id-collection", plugins: [outside("./headgate.js", "index.js"), terse("readable")],
  }),
  publish("src/backbone/index.js", "cjs", "headgate.backbone.cjs"),
  ...Object.entries(PARTS).flatMap(([name, { entry, ...more }]) => [
    publish(`src/${entry}`, "esm", `headgate.${name}.js`, more),
    publish(`src/${entry}`, "cjs", `headgate.${name}.cjs`, more),
  ]),
  // Otherwise the file contains the names of the modules.
  build({ ...global, minifyIdentifiers: true, outfile: "dist/headgate.global.min.js", plugins: [...SCRIPT, instead("language/explain.js", "script-tag/explain.js"), terse("minified")] }),
  build({ ...base, entryPoints: ["src/language/development.js"], format: "esm", outfile: "dist/headgate.development.js", banner, plugins: [terse("minified")] }),
  build({ ...base, entryPoints: ["src/script-tag/socket.io.js"], format: "esm", outfile: "dist/headgate.socket.io.js", banner, plugins: [terse("minified")] }),
]);
await cp(resolve(WEB, "types"), resolve(DIST, "types"), { recursive: true });
// The same declarations in a folder of CommonJS modules, for `require` in TypeScript.
await cp(resolve(WEB, "types"), resolve(DIST, "types-cjs"), { recursive: true });
await writeFile(resolve(DIST, "types-cjs/package.json"), '{ "type": "commonjs" }\n');
await mkdir(STATIC, { recursive: true });
for (const [name, made] of Object.entries(SERVED)) {
  const contents = await readFile(resolve(DIST, made));
  await writeFile(resolve(STATIC, name), contents);
  await writeFile(resolve(STATIC, `${name}.gz`), gzipSync(contents, { level: 9 }));
}
const [, consoleSize] = await Promise.all([buildPage("demo"), buildPage("console")]);

/** @type {Record<string, [size: number, most: number]>} */
const sizes = {
  "page with connect": [await pageSize(CONNECT), MOST.connect],
  "the same, minified by terser": [gzip((await terser(await bundleOf(CONNECT, false), { module: true, ecma: 2020 })).code ?? ""), MOST.terser],
  "page with connect and the Backbone helpers": [
    await pageSize(`import { connect } from "headgate"; import * as live from "headgate/backbone"; window.page = [connect(), live];`),
    MOST.backbone,
  ],
  "script tag": [gzip(await readFile(resolve(DIST, "headgate.global.min.js"))), MOST.script],
  "the transport over HTTP, where no WebSocket gets through": [gzip(await readFile(resolve(DIST, HTTP))), MOST_HTTP],
  "socket.io-client and the transport by it": [gzip(await readFile(resolve(DIST, "headgate.socket.io.js"))), Infinity],
  "the console": [consoleSize, MOST_CONSOLE],
};
const page = (/** @type {string[]} */ ...parts) =>
  pageSize(["index", ...parts].map((part, nth) => `import * as part${nth} from "./dist/headgate${part === "index" ? "" : `.${part}`}.js"; window.part${nth} = part${nth};`).join(""));
// Stores use headgate/presence, which a page without these hooks does not load.
const [plain, withPresence, stores] = [await page(), await page("presence"), await page("presence", "store")];
sizes["everything but the parts of frameworks"] = [await page(...EVERYTHING), MOST.everything];
sizes["all of headgate/store, beside the client and headgate/presence"] = [stores - withPresence, MOST_MORE.store];
for (const name of /** @type {const} */ (["offline", "presence", "inbox", "history", "request", "tabs"])) sizes[`all of headgate/${name}, beside the client`] = [(await page(name)) - plain, MOST_MORE[name]];
for (const name of /** @type {const} */ (["react", "vue", "svelte"])) sizes[`headgate/${name}, beside headgate/store`] = [(await page("presence", "store", name)) - stores, MOST_MORE[name]];
for (const [name, [size]] of Object.entries(sizes)) console.log(`${name}: ${size} bytes gzip`);
const heavy = Object.entries(sizes).filter(([, [size, most]]) => size > most);
if (heavy.length) {
  const fault = `heavier than allowed: ${heavy.map(([name, [, most]]) => `${name} (${most})`).join(", ")}`;
  // The limits are for Chromium's zlib, which is in Node's own builds and has a suffix in its version. The zlib of a distribution compresses up to 3 % less.
  if (process.versions.zlib.includes("-")) throw new Error(fault);
  console.warn(`${fault}, as this zlib (${process.versions.zlib}) compresses`);
}
