/**
 * Build of the pages of the demo and the console: one script, one style sheet and one icon each for the ready-made server, with a .gz beside each.
 *
 * In: <page>/src/main.js with the browser client as it is published (dist); <page>/styles/<page>.css with the files that it imports; the icon. Out:
 * these as files in the server's static folder. build.mjs calls it when dist is there; `node web/pages.mjs` runs it alone.
 */
import { cp, mkdir, readFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { compress } from "./compress.mjs";

const WEB = dirname(fileURLToPath(import.meta.url));
const STATIC = resolve(WEB, "../server/headgate_server/static");
/** The icon of each page. It stays a separate file, because the templates name it too. */
const ICONS = { "demo": "demo-icon.svg", "console": "console.svg" };
/** The entry points of the package that a page uses. */
const PARTS = ["inbox", "presence", "tabs"];
const SOCKET_IO = "/headgate/headgate.socket.io.js";
/** The client loads its other transports from the gateway. @type {import("esbuild").Plugin} */
const HTTP = {
  name: "http",
  setup: ({ onResolve }) => onResolve({ filter: /headgate\.(http|debug)\.js$/ }, ({ path }) => ({ path: path.replace(".", "/headgate"), external: true })),
};
/** While it loads, uPlot 1.6.32 makes a number format for the browser's language, which throws for invalid ones ("C", "en-US@posix"; its pull request 1054). */
const LOCALE = "domEnv ? nav.language : 'en-US'";
/** @type {import("esbuild").Plugin} */
const UPLOT = {
  name: "uPlot",
  setup: ({ onLoad }) =>
    onLoad({ filter: /uPlot\.esm\.js$/ }, async ({ path }) => {
      const text = await readFile(path, "utf8");
      if (!text.includes(LOCALE)) throw Error("uPlot no longer needs this");
      return { contents: text.replace(LOCALE, "") };
    }),
};

/**
 * Build a page. Rejected if a source does not parse or an import is missing.
 * @param {keyof typeof ICONS} page @returns {Promise<number>} its bytes, gzip
 */
export async function buildPage(page) {
  await mkdir(STATIC, { recursive: true });
  await build({
    absWorkingDir: resolve(WEB, page),
    entryPoints: { [page]: "src/main.js", [`${page}-style`]: `styles/${page}.css` },
    entryNames: page,
    outdir: STATIC,
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    legalComments: "none",
    logLevel: "warning",
    alias: {
      ...Object.fromEntries(PARTS.map((part) => [`headgate/${part}`, resolve(WEB, `dist/headgate.${part}.js`)])),
      headgate: resolve(WEB, "dist/headgate.js"),
      "socket.io-client": SOCKET_IO,
    },
    external: [SOCKET_IO, ICONS[page]],
    plugins: [HTTP, UPLOT],
  });
  await cp(resolve(WEB, page, ICONS[page]), resolve(STATIC, ICONS[page]));
  return compress(STATIC, [`${page}.js`, `${page}.css`, ICONS[page]]);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const page of /** @type {(keyof typeof ICONS)[]} */ (Object.keys(ICONS))) console.log(`${page}: ${await buildPage(page)} bytes gzip`);
}
