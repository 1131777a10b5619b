/** docs/guide.md as one program. Every block runs, from top to bottom, against a real gateway. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { after, before, it, mock } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";
import Backbone from "backbone";
import { GatewayProcess, until } from "./gateway-process.mjs";
import { SECRET, token } from "./tokens.mjs";

const ROOT = new URL("../../../", import.meta.url);
// Inside the package, so that `import "headgate"` is the package as built.
const FOLDER = fileURLToPath(new URL("web/dist/guide/", ROOT));
const PYTHON = process.env.HEADGATE_PYTHON ?? fileURLToPath(new URL(".venv/bin/python", ROOT));
const NOT_RUN = /^<!-- not run: .+ -->$/;

/** @type {GatewayProcess} */
let gateway;
/** @type {{ language: string, code: string, run: boolean }[]} */
let blocks;

before(async () => {
  const text = await readFile(new URL("docs/guide.md", ROOT), "utf8");
  blocks = [...text.matchAll(/([^\n]*)\n```(\w+)\n(.*?)\n```\n/gs)].map(([, above, language, code]) => ({ language, code, run: !NOT_RUN.test(above) }));
  // Development lets a page without a token in, as the guide's second connection.
  gateway = await new GatewayProcess({ HEADGATE_TOKEN_SECRET: SECRET }).start();
  await mkdir(FOLDER, { recursive: true });
});

after(async () => {
  mock.restoreAll();
  await gateway?.remove();
  await rm(FOLDER, { recursive: true, force: true });
});

it("has only blocks that are run, or that say why not", () => {
  assert.deepEqual(new Set(blocks.map(({ language }) => language)), new Set(["html", "js", "python"]));
  assert.ok(blocks.length >= 12);
  assert.equal(blocks.filter(({ run }) => !run).length, 2);
});

it("does what it says", async () => {
  const of = (/** @type {string} */ language, between = "") => blocks.filter((block) => block.run && block.language === language).map(({ code }) => code).join(`\n${between}\n`);
  /** @type {string[]} */
  const logged = [];
  const fetched = mock.method(globalThis, "fetch", async (/** @type {string} */ url) =>
    url === "/orders" ? Response.json({ orders: [{ id: 42, status: "new" }] }) : new Response(token("ann", { subscribe: ["#"], publish: ["#"] })),
  );
  // The reader's own server, for which Backbone wants jQuery, in a browser.
  const asked = mock.method(Backbone, "ajax", (/** @type {any} */ { success }) => void setImmediate(() => success([{ id: 42, version: 1, status: "new" }])));
  mock.method(console, "log", (/** @type {any[]} */ ...words) => logged.push(words.join(" ")));
  // A reader takes longer from block to block than a subscription to be acknowledged; earlier events are not owed to it.
  Object.assign(globalThis, {
    inForce: (/** @type {import("headgate").Gate} */ gate) =>
      until(() => Object.values(gate.state.subscriptions).every((standing) => standing === "active"), "every subscription"),
  });
  const file = `${FOLDER}guide.mjs`;
  const program = `${of("js", "await inForce(gate);").replaceAll("https://example.com", gateway.url)}\nexport { board, careful, firstShipped, gate, notifications, orders, orderStatus };\n`;
  await writeFile(file, program);
  const page = await import(pathToFileURL(file).href);
  try {
    await until(() => page.careful.state.subscriptions["orders.#"] === "active", "the second connection");
    const shipped = page.firstShipped();
    await page.gate.subscribed("orders.*.shipped");
    await writeFile(`${FOLDER}publish.py`, of("python").replace("redis://localhost:6379/0", gateway.redisUrl));
    const { stdout } = await promisify(execFile)(PYTHON, [`${FOLDER}publish.py`]);
    assert.match(stdout, /^[0-9a-f]{16} \d+\n$/);
    assert.deepEqual(await shipped, ["orders.42.shipped", "UPS"]);
    await writeFile(`${FOLDER}notify.py`, `from headgate import Inbox, Publisher\nInbox(Publisher("${gateway.redisUrl}")).send("ann", "news", "hello")\n`);
    await promisify(execFile)(PYTHON, [`${FOLDER}notify.py`]);
    const expected = [
      "published true", "payload_too_large false 65536", "board orders.7.created", "past orders.7.created true", "replayed 1",
      "true 0", "shipped orders.42.shipped UPS", "board orders.42.shipped", "order 42 shipped", "unread 1",
    ];
    await until(() => expected.every((line) => logged.includes(line)), `all of ${expected.filter((line) => !logged.includes(line))}`);
    assert.equal(page.orders.get(42).get("status"), "shipped");
    assert.deepEqual([page.board.status, page.orderStatus.get(42)], ["current", "shipped"]);
    assert.deepEqual(asked.mock.calls.map(({ arguments: [{ type, url }] }) => [type, url]), [["GET", "/orders"], ["GET", "/orders"]]);
    assert.ok(!logged.some((line) => /^(stock|missed|fetch again|error|signed out)/.test(line)), logged.join("\n"));
    assert.ok(fetched.mock.callCount() >= 1);
  } finally {
    page.gate.close();
    page.careful.close();
  }
});
