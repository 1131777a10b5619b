/**
 * What a page loads with each client: `node bench/client/weights.mjs`, after `make build` and `make -C bench client-peers`.
 *
 * Out: for each client all the JavaScript (gzip -9, bundled and minified by esbuild) of a page that connects and listens, as a table. A
 * client that loads more later, or only where a WebSocket does not get through, is weighed without that.
 */
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const PEERS = fileURLToPath(new URL("peers/", import.meta.url));

/** Client, the page with it, what that page has, and where its packages are. @type {[string, string, string, string][]} */
const PAGES = [
  ["headgate", `import { connect } from "headgate"; connect("/").on("orders.#", console.log);`, "patterns, resume, repair, told gaps", HERE],
  [
    "headgate, with live models and lists",
    `import Backbone from "backbone"; import { connect } from "headgate"; import { LiveCollection, LiveModel, NotificationList } from "headgate/backbone";
     new LiveCollection([], { gate: connect("/") }); console.log(Backbone, LiveModel, NotificationList);`,
    "the same, and Backbone's helpers (Backbone apart)",
    HERE,
  ],
  ["phoenix", `import { Socket } from "phoenix"; const socket = new Socket("/socket"); socket.connect(); socket.channel("orders").join();`, "channels, no resume", PEERS],
  ["socket.io-client", `import { io } from "socket.io-client"; io("/").on("orders", console.log);`, "events; resume where the server keeps it", PEERS],
  ["pusher-js", `import Pusher from "pusher-js"; new Pusher("key", { cluster: "eu" }).subscribe("orders").bind("shipped", console.log);`, "channels, no resume", PEERS],
  [
    "centrifuge",
    `import { Centrifuge } from "centrifuge"; const all = new Centrifuge("/connection"); all.newSubscription("orders").subscribe(); all.connect();`,
    "channels, resume where the channel has a history",
    PEERS,
  ],
  ["ably", `import { Realtime } from "ably"; new Realtime({ key: "key" }).channels.get("orders").subscribe(console.log);`, "channels, resume within two minutes", PEERS],
  [
    "ably, modular",
    `import { BaseRealtime, FetchRequest, WebSocketTransport } from "ably/modular";
     new BaseRealtime({ key: "key", plugins: { FetchRequest, WebSocketTransport } }).channels.get("orders").subscribe(console.log);`,
    "the same, with the least that connects",
    PEERS,
  ],
];

console.log("| client | version | KB, gzip | a page that has |\n|---|---|---|---|");
for (const [client, source, has, folder] of PAGES) {
  const { outputFiles } = await build({
    // tsconfig.json leads `headgate` to the sources, and a page gets what is published.
    stdin: { contents: source, resolveDir: folder }, tsconfigRaw: {}, bundle: true, minify: true, write: false, format: "esm", target: "es2022", platform: "browser",
    external: folder === HERE ? ["backbone", "socket.io-client", "./headgate.socketio.js"] : [], logLevel: "error",
  });
  const name = client.split(",")[0];
  const place = folder === HERE ? new URL("../../web/package.json", import.meta.url) : new URL(`peers/node_modules/${name}/package.json`, import.meta.url);
  const { version } = JSON.parse(await readFile(place, "utf8"));
  const bytes = gzipSync(outputFiles[0].contents, { level: 9 }).length;
  console.log(`| ${client} | ${version} | ${(bytes / 1000).toFixed(1)} | ${has} |`);
}
