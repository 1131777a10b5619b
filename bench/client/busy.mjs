/**
 * A busy page: `node bench/client/busy.mjs [seconds, default 60] [events per second, default 10000]`, after `make build .venv/.headgate-dev`.
 *
 * A real gateway with a private Redis, a publisher that keeps an open schedule, and Chromium with one page that renders in each frame. Out:
 * frames in each second, whether every event came once and in order, how late, and the CPU seconds of each process. All of them share this machine.
 */
import { spawn } from "node:child_process";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { cpus, loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { GatewayProcess } from "../../tests/integration/client/gateway-process.mjs";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const PYTHON = process.env.HEADGATE_PYTHON ?? fileURLToPath(new URL("../../.venv/bin/python", import.meta.url));
const NAMES = [process.env.CHROMIUM, "chromium", "chromium-browser", "google-chrome", "chrome"].filter(Boolean);
const seconds = Number(process.argv[2] ?? 60);
const perSecond = Number(process.argv[3] ?? 10_000);
const BATCHES_PER_S = 100;
const TOPICS = 1000;
/** Time after the last event for a page that lags. */
const GRACE_S = 120;

/** Each batch at its time, whatever the one before took. */
const PUBLISHER = `
import sys, time
from headgate import Publisher
url, seconds, rate = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
publisher, batch, n, began = Publisher(url), rate // ${BATCHES_PER_S}, 0, time.time()
for nth in range(seconds * ${BATCHES_PER_S}):
    at = began + nth / ${BATCHES_PER_S}
    time.sleep(max(0, at - time.time()))
    publisher.publish_many([(f"orders.{(n + k) % ${TOPICS}}.moved", {"n": n + k, "at": at * 1000, "status": "on its way"}) for k in range(batch)])
    n += batch
print(f"{time.time() - began:.1f} {time.process_time():.1f}")
`;

/** @param {import("node:http").IncomingMessage} request */
async function bodyOf(request) {
  let text = "";
  for await (const part of request) text += part;
  return text;
}

/** CPU seconds of each process that descends from one, and of itself, by command; empty where there is no /proc. @param {number} root */
async function cpuBelow(root) {
  /** @type {Map<number, { parent: number, name: string, cpuS: number }>} */
  const all = new Map();
  for (const pid of (await readdir("/proc").catch(() => [])).filter((name) => /^\d+$/.test(name))) {
    try {
      const text = await readFile(`/proc/${pid}/stat`, "utf8");
      const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
      const kind = /--type=([\w-]+)/.exec(await readFile(`/proc/${pid}/cmdline`, "utf8"))?.[1];
      all.set(Number(pid), { parent: Number(fields[1]), name: kind ?? text.slice(text.indexOf("(") + 1, text.lastIndexOf(")")), cpuS: (Number(fields[11]) + Number(fields[12])) / 100 });
    } catch {
      // It has ended.
    }
  }
  /** @type {Record<string, number>} */
  const sums = {};
  for (const [pid, { name, cpuS }] of all) {
    let above = pid;
    while (above > 1 && above !== root) above = all.get(above)?.parent ?? 0;
    if (above === root) sums[name] = (sums[name] ?? 0) + cpuS;
  }
  return sums;
}

/** @param {string} folder @param {string} url */
function openChromium(folder, url) {
  const words = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", `--user-data-dir=${folder}`, url];
  return spawn("sh", ["-c", `for name in ${NAMES.join(" ")}; do command -v "$name" >/dev/null && exec "$name" "$@"; done; exit 127`, "sh", ...words], { stdio: "ignore" });
}

const { outputFiles } = await build({
  entryPoints: [join(HERE, "busy-page.js")], bundle: true, write: false, format: "iife", target: "es2022", minify: true, external: ["socket.io-client"], tsconfigRaw: {}, logLevel: "error",
});
const steps = { ready: deferred(), result: deferred() };
function deferred() {
  /** @type {any} */
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
}
const pages = createServer(async (request, response) => {
  if (request.url === "/page.js") return response.setHeader("Content-Type", "text/javascript").end(outputFiles[0].contents);
  if (request.url === "/ready") steps.ready.resolve(undefined);
  if (request.url === "/result") steps.result.resolve(JSON.parse(await bodyOf(request)));
  response.setHeader("Content-Type", "text/html").end('<!doctype html><body><table></table><script src="/page.js"></script>');
}).listen(0, "127.0.0.1");
await new Promise((resolve) => pages.once("listening", resolve));
const origin = `http://127.0.0.1:${/** @type {import("node:net").AddressInfo} */ (pages.address()).port}`;
const folder = await mkdtemp(join(tmpdir(), "headgate-busy-"));
// A page that lags reads the log, which must still hold its position.
const gateway = new GatewayProcess({ HEADGATE_ALLOWED_ORIGINS: origin, HEADGATE_LOG_MAX_EVENTS: "1000000", HEADGATE_LOG_MAX_AGE_S: "600" });
/** @type {import("node:child_process").ChildProcess | undefined} */
let chromium;
try {
  await gateway.start();
  chromium = openChromium(folder, `${origin}/?gateway=${encodeURIComponent(gateway.url)}&events=${seconds * perSecond}`);
  chromium.once("exit", (code) => steps.ready.reject(new Error(`Chromium ended with ${code}`)));
  const late = setTimeout(() => steps.ready.reject(new Error("the page was not ready in a minute")), 60_000);
  await steps.ready.promise;
  clearTimeout(late);
  const before = await cpuBelow(process.pid);
  const publisher = spawn(PYTHON, ["-c", PUBLISHER, gateway.redisUrl, String(seconds), String(perSecond)], { stdio: ["ignore", "pipe", "inherit"] });
  const took = bodyOf(/** @type {any} */ (publisher.stdout));
  const end = setTimeout(() => steps.result.reject(new Error(`the page had not everything ${GRACE_S} s after the end`)), (seconds + GRACE_S) * 1000);
  const result = await steps.result.promise;
  clearTimeout(end);
  const [tookS, publisherS] = (await took).trim().split(" ");
  report(result, tookS, before, { publisher: Number(publisherS), ...(await cpuBelow(process.pid)) });
} finally {
  pages.close();
  chromium?.kill();
  await gateway.remove();
  await rm(folder, { recursive: true, force: true, maxRetries: 20 });
}
process.exit();

/** @param {any} result @param {string} took @param {Record<string, number>} before @param {Record<string, number>} after */
function report(result, took, before, after) {
  const { frames, longestFrameMs, received, wrong, gaps, missed, pressure, downs, latencies, peakWaiting } = result;
  const sorted = [...frames].sort((a, b) => a - b);
  const cpu = Object.entries(after).map(([name, cpuS]) => [name, cpuS - (before[name] ?? 0)]).filter(([, cpuS]) => Number(cpuS) >= 0.5);
  console.log(`${cpus()[0].model}, ${cpus().length} processors, load ${loadavg()[0].toFixed(1)}; Node ${process.version}; ${result.agent}`);
  console.log(`${seconds} s of ${perSecond} events per second (published in ${took} s)\n`);
  console.log(`frames per second: median ${sorted[sorted.length >> 1]}, least ${sorted[0]}, seconds below 50: ${sorted.filter((n) => n < 50).length} of ${sorted.length}; longest frame ${longestFrameMs} ms`);
  console.log(`events: ${received} of ${seconds * perSecond}, out of order or twice: ${wrong}; gaps: ${gaps}, events missed for good: ${missed}`);
  console.log(`behind: at most ${peakWaiting} messages waited in the page; backpressure notices: ${pressure}; disconnected: ${downs}`);
  console.log(`from the planned time to the handler, ms: p50 ${latencies.p50}, p99 ${latencies.p99}, max ${latencies.max}`);
  console.log(`CPU seconds: ${cpu.map(([name, cpuS]) => `${name} ${Number(cpuS).toFixed(1)}`).join(", ")}`);
  if (received !== seconds * perSecond || wrong || missed) process.exitCode = 1;
}
