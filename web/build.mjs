/**
 * Build of the npm package `headgate`: bundles by esbuild, declarations by tsc, sizes printed.
 *
 * In: src/. Out: dist/ (ESM and CommonJS with socket.io-client and Backbone outside; a script-tag file with
 * socket.io-client inside that takes Backbone from the page), the same script-tag file where the Flask extension serves it from
 * (gateway/headgate/static, compressed too), and the demo that demo/build.mjs makes of dist.
 *
 * Statements labelled STRICT throw at a fault of this package that a page can live with; they are left out.
 *
 * No property is renamed, in any file: Backbone's own names, and those of whatever an application hands over, begin with an
 * underscore too. Modules keep every name, so that a stack trace reads like the source; the page's own bundler shortens them.
 */
import { execFileSync } from "node:child_process";
import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build, transform } from "esbuild";
import { buildDemo } from "./demo/build.mjs";

const WEB = dirname(fileURLToPath(import.meta.url));
const DIST = resolve(WEB, "dist");
const SERVED = resolve(WEB, "../gateway/headgate/static/headgate.js");

const { version } = JSON.parse(await readFile(resolve(WEB, "package.json"), "utf8"));
const banner = { js: `/*! headgate ${version} | MIT */` };

/** @type {import("esbuild").BuildOptions} */
const base = { absWorkingDir: WEB, bundle: true, target: "es2022", platform: "browser", logLevel: "warning", legalComments: "none", dropLabels: ["STRICT"] };
/** @type {import("esbuild").BuildOptions} */
const library = { ...base, external: ["socket.io-client", "backbone", "underscore"], minifyWhitespace: true, minifySyntax: true, sourcemap: "linked" };

/**
 * Make one file of the package. The Backbone part imports the client as the file beside it, so that a page has one of it.
 * @param {string} entry @param {"esm" | "cjs"} format @param {string} name of the file in dist
 */
function publish(entry, format, name) {
  const index = format === "esm" ? "./headgate.js" : "./headgate.cjs";
  /** @type {import("esbuild").Plugin} */
  const beside = {
    name: "beside",
    setup({ onResolve }) {
      onResolve({ filter: /^\.\/index\.js$/ }, () => ({ path: index, external: true }));
    },
  };
  return build({ ...library, entryPoints: [entry], format, outfile: resolve(DIST, name), plugins: [beside] });
}

/** `import Backbone from "backbone"` in a page without modules: the page's own. @type {import("esbuild").Plugin} */
const backboneOfThePage = {
  name: "backbone-of-the-page",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^backbone$/ }, () => ({ path: "backbone", namespace: "page" }));
    onLoad({ filter: /.*/, namespace: "page" }, () => ({ contents: "export default globalThis.Backbone" }));
  },
};

/**
 * Measure a file of dist: as it is, and as a page gets it whose bundler shortens names.
 * @param {string} name
 */
async function sizeOf(name) {
  const contents = (await readFile(resolve(DIST, name), "utf8")).replace(/\n\/\/# sourceMappingURL=.*\n?$/, "");
  const { code } = await transform(contents, { minify: true, format: name.includes("global") ? undefined : "esm", target: base.target });
  const gzip = (/** @type {string} */ text) => gzipSync(text, { level: 9 }).length;
  return { bytes: Buffer.byteLength(contents), gzip: gzip(contents), minified: gzip(code) };
}

function declarations() {
  const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");
  const options = ["--noEmit", "false", "--declaration", "--emitDeclarationOnly", "--rootDir", "src", "--outDir", "dist/types"];
  execFileSync(process.execPath, [tsc, "--project", "tsconfig.types.json", ...options], { cwd: WEB, stdio: "inherit" });
}

await rm(DIST, { recursive: true, force: true });
/** @type {import("esbuild").BuildOptions} */
const global = { ...base, entryPoints: ["src/global.js"], format: "iife", plugins: [backboneOfThePage], banner };
await Promise.all([
  publish("src/index.js", "esm", "headgate.js"),
  publish("src/index.js", "cjs", "headgate.cjs"),
  publish("src/backbone.js", "esm", "headgate.backbone.js"),
  publish("src/backbone.js", "cjs", "headgate.backbone.cjs"),
  build({ ...global, outfile: "dist/headgate.global.js" }),
  build({ ...global, outfile: "dist/headgate.global.min.js", minify: true }),
]);
declarations();
// The same declarations under a folder that says CommonJS, for `require` in TypeScript.
await cp(resolve(DIST, "types"), resolve(DIST, "types-cjs"), { recursive: true });
await writeFile(resolve(DIST, "types-cjs/package.json"), '{ "type": "commonjs" }\n');
await mkdir(dirname(SERVED), { recursive: true });
await cp(resolve(DIST, "headgate.global.min.js"), SERVED);
await writeFile(`${SERVED}.gz`, gzipSync(await readFile(SERVED), { level: 9 }));
await buildDemo();

const sizes = {
  "client alone": await sizeOf("headgate.js"),
  "backbone part alone": await sizeOf("headgate.backbone.js"),
  "script tag, socket.io-client inside": await sizeOf("headgate.global.min.js"),
};
for (const [name, { bytes, gzip, minified }] of Object.entries(sizes)) {
  console.log(`${name}: ${bytes} bytes, ${gzip} gzip, ${minified} gzip with short names`);
}
