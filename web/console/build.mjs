/**
 * Build of the console's page: one script and one style sheet for the server, each with a .gz beside it.
 *
 * In: src/main.js with the browser client as it is published (../dist) and uPlot; styles/console.css with the files that it imports. Out:
 * console.js, console.css, console.svg in the server's static folder. ../build.mjs calls it when dist is there; `node web/console/build.mjs`
 * runs it alone.
 */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { compress } from "../compress.mjs";

const CONSOLE = dirname(fileURLToPath(import.meta.url));
const SOCKET_IO = "/headgate/headgate.socket.io.js";
/** The client loads its other transports from where the gateway has them. @type {import("esbuild").Plugin} */
const HTTP = {
  name: "http",
  setup: ({ onResolve }) => onResolve({ filter: /headgate\.http\.js$/ }, () => ({ path: "/headgate/headgate.http.js", external: true })),
};
const STATIC = resolve(CONSOLE, "../../server/headgate_server/static");

/** Build the page; rejected when a source does not parse or an import is missing. @returns {Promise<number>} the bytes, gzip, of script and style sheet */
export async function buildConsole() {
  await mkdir(STATIC, { recursive: true });
  await build({
    absWorkingDir: CONSOLE,
    entryPoints: { "console": "src/main.js", "console-style": "styles/console.css" },
    entryNames: "console",
    outdir: STATIC,
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    legalComments: "none",
    logLevel: "warning",
    alias: { headgate: resolve(CONSOLE, "../dist/headgate.js"), "socket.io-client": SOCKET_IO },
    // The icon is a file of its own, which pages name too.
    external: [SOCKET_IO, "console.svg"],
    plugins: [HTTP],
  });
  await writeFile(resolve(STATIC, "console.svg"), await readFile(resolve(CONSOLE, "console.svg")));
  return compress(STATIC, ["console.js", "console.css", "console.svg"]);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) console.log(`console: ${await buildConsole()} bytes gzip`);
