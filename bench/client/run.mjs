/**
 * The figures of the browser client: `node bench/client/run.mjs [milliseconds for each figure]`, after `make build`.
 *
 * Out: dispatch compared with mitt and Backbone in Node and in Chromium (`$CHROMIUM`, or one of the usual names), and what many subscriptions cost in Node, as a table.
 */
import { execFileSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import Backbone from "backbone";
import { build } from "esbuild";
import { connect, Dispatcher } from "headgate";
import { eventsStore } from "headgate/store";
import mitt from "mitt";
import { measure } from "./dispatch.js";
import { measureJoining } from "./joining.js";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const budgetMs = Number(process.argv[2] ?? 500);
const NAMES = [process.env.CHROMIUM, "chromium", "chromium-browser", "google-chrome", "chrome"].filter(Boolean);

/** Return the figures in Chromium, or null where there is none. */
async function inChromium() {
  const folder = await mkdtemp(join(tmpdir(), "headgate-bench-"));
  try {
    const page = `import { connect, Dispatcher } from "headgate"; import mitt from "mitt"; import Backbone from "backbone"; import { measure } from "./dispatch.js";
      document.body.textContent = JSON.stringify(measure({ connect, Dispatcher, mitt, Backbone }, ${budgetMs}));`;
    const { outputFiles } = await build({
      // tsconfig.json leads `headgate` to the sources, and a page gets what is published.
      stdin: { contents: page, resolveDir: HERE }, tsconfigRaw: {}, bundle: true, write: false, format: "iife", target: "es2022", minify: true, external: ["jquery"], logLevel: "error",
    });
    await writeFile(join(folder, "page.js"), outputFiles[0].contents);
    await writeFile(join(folder, "page.html"), '<!doctype html><body></body><script src="page.js"></script>');
    for (const name of NAMES) {
      try {
        const words = ["--headless", "--no-sandbox", "--disable-gpu", `--user-data-dir=${folder}/profile`, "--dump-dom", join(folder, "page.html")];
        const page = execFileSync(/** @type {string} */ (name), words, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"], timeout: 120_000 + 40 * budgetMs });
        return JSON.parse(/<body>(\[.*\])<\/body>|<body>(\[.*?\])</s.exec(page)?.[0].replace(/<[^>]*>?/g, "") ?? "null");
      } catch (/** @type {any} */ error) {
        if (error.code !== "ENOENT") throw error;
      }
    }
    return null;
  } finally {
    await rm(folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

const node = [...measure({ connect, Dispatcher, mitt, Backbone }, budgetMs), ...(await measureJoining({ connect, eventsStore }))];
const chromium = await inChromium();
const show = (/** @type {number | undefined} */ value) => (value === undefined ? "–" : value.toLocaleString("en"));
console.log(`${cpus()[0].model}, ${cpus().length} processors; Node ${process.version}; the best round of ${budgetMs} ms\n`);
console.log(`| scenario | library | Node | Chromium |\n|---|---|---|---|`);
for (const [nth, { scenario, peer, unit, value }] of node.entries()) {
  console.log(`| ${scenario} (${unit}) | ${peer} | ${show(value)} | ${show(chromium?.[nth]?.value)} |`);
}
