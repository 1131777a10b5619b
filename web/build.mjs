/**
 * Build of the npm package `headgate`: bundles by esbuild, declarations by tsc, sizes printed and limited.
 *
 * In: src/. Out: dist/ (ESM and CommonJS with socket.io-client and Backbone outside; a script-tag file with
 * socket.io-client inside that takes Backbone from the page), and the same script-tag file as the ready-made server's
 * static/headgate.js, beside the demo that demo/build.mjs makes.
 */
import { execFileSync } from "node:child_process";
import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { buildDemo } from "./demo/build.mjs";

const WEB = dirname(fileURLToPath(import.meta.url));
const DIST = resolve(WEB, "dist");
const SERVED = resolve(WEB, "../server/headgate_server/static/headgate.js");
/** The client alone, minified and compressed. The aim was 6 KiB: docs/decisions/0006-the-client-is-above-its-size.md. */
const LIMIT_GZIP_BYTES = 7.75 * 1024;

const { version } = JSON.parse(await readFile(resolve(WEB, "package.json"), "utf8"));
const banner = { js: `/*! headgate ${version} | MIT */` };

/** @type {import("esbuild").BuildOptions} */
const base = { absWorkingDir: WEB, bundle: true, target: "es2022", platform: "browser", banner, logLevel: "warning", legalComments: "none" };
/** @type {import("esbuild").BuildOptions} */
const library = { ...base, external: ["socket.io-client", "backbone", "underscore"] };

/** `import Backbone from "backbone"` in a page without modules: the page's own. @type {import("esbuild").Plugin} */
const backboneOfThePage = {
  name: "backbone-of-the-page",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^backbone$/ }, () => ({ path: "backbone", namespace: "page" }));
    onLoad({ filter: /.*/, namespace: "page" }, () => ({ contents: "export default globalThis.Backbone" }));
  },
};

/** @param {import("esbuild").BuildOptions} options */
async function sizeOf(options) {
  const { outputFiles } = await build({ ...options, minify: true, write: false });
  const [{ contents }] = outputFiles ?? [];
  return { bytes: contents.length, gzip: gzipSync(contents, { level: 9 }).length };
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
  build({ ...library, ...main, format: "esm", outfile: "dist/headgate.js", sourcemap: true }),
  build({ ...library, ...main, format: "cjs", outfile: "dist/headgate.cjs", sourcemap: true }),
  build({ ...library, ...backbone, format: "esm", outfile: "dist/headgate.backbone.js", sourcemap: true }),
  build({ ...library, ...backbone, format: "cjs", outfile: "dist/headgate.backbone.cjs", sourcemap: true }),
  build({ ...library, ...stream, format: "esm", outfile: "dist/headgate.stream.js", sourcemap: true }),
  build({ ...library, ...stream, format: "cjs", outfile: "dist/headgate.stream.cjs", sourcemap: true }),
  build({ ...global, outfile: "dist/headgate.global.js" }),
  build({ ...global, outfile: "dist/headgate.global.min.js", minify: true }),
]);
declarations();
// The same declarations under a folder that says CommonJS, for `require` in TypeScript.
await cp(resolve(DIST, "types"), resolve(DIST, "types-cjs"), { recursive: true });
await writeFile(resolve(DIST, "types-cjs/package.json"), '{ "type": "commonjs" }\n');
await mkdir(dirname(SERVED), { recursive: true });
await cp(resolve(DIST, "headgate.global.min.js"), SERVED);
await buildDemo();

const client = await sizeOf({ ...library, ...main, format: "esm" });
const sizes = {
  "client alone": client,
  "stream part alone": await sizeOf({ ...library, ...stream, format: "esm" }),
  "backbone part alone": await sizeOf({ ...library, ...backbone, format: "esm" }),
  "script tag, socket.io-client inside": await sizeOf(global),
};
for (const [name, { bytes, gzip }] of Object.entries(sizes)) console.log(`${name}: ${bytes} bytes, ${gzip} gzip`);
if (client.gzip > LIMIT_GZIP_BYTES) {
  console.error(`the client alone is ${client.gzip} bytes gzip, above its limit of ${LIMIT_GZIP_BYTES}`);
  process.exitCode = 1;
}
