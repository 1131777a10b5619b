/**
 * Build of the npm package `headgate`: bundles by esbuild, declarations by tsc, sizes printed.
 *
 * In: src/. Out: dist/ (ESM and CommonJS with socket.io-client and Backbone outside; a script-tag file with
 * socket.io-client inside that takes Backbone from the page), the same script-tag file where the Flask extension serves it from
 * (gateway/headgate/static, compressed too), and the demo that demo/build.mjs makes.
 */
import { execFileSync } from "node:child_process";
import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { minify } from "terser";
import { buildDemo } from "./demo/build.mjs";

const WEB = dirname(fileURLToPath(import.meta.url));
const DIST = resolve(WEB, "dist");
const SERVED = resolve(WEB, "../gateway/headgate/static/headgate.js");
/** What modules call each other by, and nobody else, begins with an underscore; `_callback` is Backbone's word. Not for a file with socket.io-client inside. */
const INTERNAL = { mangleProps: /^_/, reserveProps: /^_callback$/ };

const { version } = JSON.parse(await readFile(resolve(WEB, "package.json"), "utf8"));
const banner = { js: `/*! headgate ${version} | MIT */` };

/** @type {import("esbuild").BuildOptions} */
const base = { absWorkingDir: WEB, bundle: true, target: "es2022", platform: "browser", logLevel: "warning", legalComments: "none" };
/** @type {import("esbuild").BuildOptions} */
const library = { ...base, external: ["socket.io-client", "backbone", "underscore"] };

/** `gate.events` loads the stream when it is first used: a file beside, which a bundler finds too. @type {import("esbuild").Plugin} */
const streamBeside = {
  name: "stream-beside",
  setup({ onResolve }) {
    onResolve({ filter: /^\.\/stream\.js$/ }, () => ({ path: "./headgate.stream.js", external: true }));
  },
};

/** `import Backbone from "backbone"` in a page without modules: the page's own. @type {import("esbuild").Plugin} */
const backboneOfThePage = {
  name: "backbone-of-the-page",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^backbone$/ }, () => ({ path: "backbone", namespace: "page" }));
    onLoad({ filter: /.*/, namespace: "page" }, () => ({ contents: "export default globalThis.Backbone" }));
  },
};

/**
 * Make a published file: bundled by esbuild, made small by terser (5 % below esbuild's own), with the sources in its map.
 * @param {import("esbuild").BuildOptions} options @param {string} name of the file in dist
 */
async function publish(options, name) {
  const { outputFiles } = await build({ ...options, ...INTERNAL, minifySyntax: true, sourcemap: "external", outfile: resolve(DIST, name), write: false });
  const [map, bundle] = (outputFiles ?? []).map(({ text }) => text);
  const small = await minify(bundle, {
    module: options.format === "esm",
    toplevel: true,
    ecma: 2020,
    compress: { passes: 6, hoist_vars: true, sequences: false, unsafe_arrows: true },
    sourceMap: { content: map, filename: name, url: `${name}.map` },
  });
  await mkdir(DIST, { recursive: true });
  await writeFile(resolve(DIST, name), String(small.code));
  await writeFile(resolve(DIST, `${name}.map`), String(small.map));
}

/** @param {string} name of a file in dist */
async function sizeOf(name) {
  const contents = (await readFile(resolve(DIST, name), "utf8")).replace(/\n\/\/# sourceMappingURL=.*\n?$/, "");
  return { bytes: Buffer.byteLength(contents), gzip: gzipSync(contents, { level: 9 }).length };
}

function declarations() {
  const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");
  const options = ["--noEmit", "false", "--declaration", "--emitDeclarationOnly", "--rootDir", "src", "--outDir", "dist/types"];
  execFileSync(process.execPath, [tsc, "--project", "tsconfig.types.json", ...options], { cwd: WEB, stdio: "inherit" });
}

await rm(DIST, { recursive: true, force: true });
const main = { entryPoints: ["src/index.js"] };
const backbone = { entryPoints: ["src/backbone.js"] };
const stream = { entryPoints: ["src/stream.js"] };
const global = { ...base, entryPoints: ["src/global.js"], format: /** @type {const} */ ("iife"), plugins: [backboneOfThePage] };
await Promise.all([
  publish({ ...library, ...main, format: "esm", plugins: [streamBeside] }, "headgate.js"),
  publish({ ...library, ...main, format: "cjs", plugins: [streamBeside] }, "headgate.cjs"),
  publish({ ...library, ...backbone, format: "esm" }, "headgate.backbone.js"),
  publish({ ...library, ...backbone, format: "cjs" }, "headgate.backbone.cjs"),
  publish({ ...library, ...stream, format: "esm" }, "headgate.stream.js"),
  build({ ...global, banner, outfile: "dist/headgate.global.js" }),
  build({ ...global, banner, outfile: "dist/headgate.global.min.js", minify: true }),
]);
declarations();
// The same declarations under a folder that says CommonJS, for `require` in TypeScript.
await cp(resolve(DIST, "types"), resolve(DIST, "types-cjs"), { recursive: true });
await writeFile(resolve(DIST, "types-cjs/package.json"), '{ "type": "commonjs" }\n');
await mkdir(dirname(SERVED), { recursive: true });
await cp(resolve(DIST, "headgate.global.min.js"), SERVED);
await writeFile(`${SERVED}.gz`, gzipSync(await readFile(SERVED), { level: 9 }));
await buildDemo();

// The limit of the first is kept by a test: docs/decisions/0006-the-client-is-below-six-kib.md.
const sizes = {
  "client alone": await sizeOf("headgate.js"),
  "stream part alone": await sizeOf("headgate.stream.js"),
  "backbone part alone": await sizeOf("headgate.backbone.js"),
  "script tag, socket.io-client inside": await sizeOf("headgate.global.min.js"),
};
for (const [name, { bytes, gzip }] of Object.entries(sizes)) console.log(`${name}: ${bytes} bytes, ${gzip} gzip`);
