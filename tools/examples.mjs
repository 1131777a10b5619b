/**
 * Build of the examples: packs the client, installs it into a copy of each example in build/examples, and builds it.
 *
 * `node tools/examples.mjs [name…]`. Out: build/examples/<name>, built. Needs dist of the client, and a package registry.
 */
import { execFile } from "node:child_process";
import { cp, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const BUILD = join(ROOT, "build/examples");
const run = promisify(execFile);

/** Pack the client, and return where. */
async function pack() {
  await mkdir(BUILD, { recursive: true });
  const { stdout } = await run("npm", ["pack", "--silent", "--ignore-scripts", "--workspace", "web", "--pack-destination", BUILD], { cwd: ROOT });
  return join(BUILD, stdout.trim());
}

/** The examples with an npm package. */
async function names() {
  const folders = (await readdir(join(ROOT, "examples"), { withFileTypes: true })).filter((entry) => entry.isDirectory());
  const files = await Promise.all(folders.map(({ name }) => readdir(join(ROOT, "examples", name))));
  return folders.filter((_, nth) => files[nth].includes("package.json")).map(({ name }) => name);
}

/** @param {string} name @param {string} client the packed client */
async function make(name, client) {
  const folder = join(BUILD, name);
  await rm(folder, { recursive: true, force: true });
  const theirs = (/** @type {string} */ path) => !/\/(node_modules|dist|\.next)$/.test(path);
  await cp(join(ROOT, "examples", name), folder, { recursive: true, filter: theirs });
  const file = join(folder, "package.json");
  const description = JSON.parse(await readFile(file, "utf8"));
  description.dependencies.headgate = `file:${client}`;
  await writeFile(file, JSON.stringify(description, null, 2));
  await run("npm", ["install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"], { cwd: folder });
  if (description.scripts?.build) await run("npm", ["run", "--silent", "build"], { cwd: folder, env: { ...process.env, NEXT_TELEMETRY_DISABLED: "1" } });
}

const client = await pack();
const wanted = process.argv.slice(2);
for (const name of wanted.length ? wanted : await names()) {
  const begun = performance.now();
  try {
    await make(name, client);
  } catch (/** @type {any} */ { message, stdout = "", stderr = "" }) {
    console.error(`examples/${name}: ${message}\n${stdout}\n${stderr}`);
    process.exit(1);
  }
  console.log(`examples/${name}: built in ${((performance.now() - begun) / 1000).toFixed(1)} s`);
}
