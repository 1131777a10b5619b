/**
 * Build of the demo's page: one script and one style sheet for the ready-made server, each with a .gz beside it.
 *
 * In: src/main.js with the browser client as it is published (../dist); styles/demo.css with the
 * files that it imports. Out: demo.js, demo.css, demo-icon.svg in the server's static folder. ../build.mjs calls it when dist is
 * there; `node web/demo/build.mjs` runs it alone.
 */
import { cp, mkdir } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { compress } from "../compress.mjs";

const DEMO = dirname(fileURLToPath(import.meta.url));
const SOCKET_IO = "/headgate/headgate.socket.io.js";
/** The client loads its other transports from where the gateway has them. @type {import("esbuild").Plugin} */
const HTTP = {
  name: "http",
  setup: ({ onResolve }) => onResolve({ filter: /headgate\.http\.js$/ }, () => ({ path: "/headgate/headgate.http.js", external: true })),
};
/** The entry points of the package that the page uses. */
const PARTS = ["inbox", "presence", "tabs"];
const STATIC = resolve(DEMO, "../../server/headgate_server/static");

/** Build the page; rejected when a source does not parse or an import is missing. @returns {Promise<number>} its bytes, gzip */
export async function buildDemo() {
  await mkdir(STATIC, { recursive: true });
  await Promise.all([
    build({
      absWorkingDir: DEMO,
      entryPoints: { "demo": "src/main.js", "demo-style": "styles/demo.css" },
      entryNames: "demo",
      outdir: STATIC,
      bundle: true,
      minify: true,
      format: "esm",
      target: "es2022",
      legalComments: "none",
      logLevel: "warning",
      alias: { ...Object.fromEntries(PARTS.map((part) => [`headgate/${part}`, resolve(DEMO, `../dist/headgate.${part}.js`)])), "socket.io-client": SOCKET_IO },
      // The pages name the icon too, so it stays a file of its own.
      external: ["demo-icon.svg", SOCKET_IO],
      plugins: [HTTP],
    }),
    cp(resolve(DEMO, "demo-icon.svg"), resolve(STATIC, "demo-icon.svg")),
  ]);
  return compress(STATIC, ["demo.js", "demo.css", "demo-icon.svg"]);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) console.log(`demo: ${await buildDemo()} bytes gzip`);
