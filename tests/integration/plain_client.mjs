/**
 * Stock socket.io-client against a gateway, as anyone without Headgate's own client would use it. Prints one line of JSON for
 * each event; test_node_client.py reads them and publishes at the same time. Ends when COUNT events, every answer and, of
 * several transports, the last are there.
 *
 * Usage: node plain_client.mjs URL TRANSPORTS COUNT [TOKEN], such as `http://127.0.0.1:8000 polling,websocket 300`.
 */
import { io } from "socket.io-client";

const [url, transports, count, token] = process.argv.slice(2);
/** @param {string} name @param {unknown} [body] */
const tell = (name, body) => process.stdout.write(`${JSON.stringify([name, body ?? null])}\n`);

const socket = io(`${url}/notifications`, {
  transports: transports.split(","),
  reconnection: false,
  auth: { ...(token && { token }), subscriptions: [{ pattern: "orders.*" }, { pattern: "a..b" }] },
});
const upgrades = transports.includes(",");
let missing = Number(count) + (upgrades ? 2 : 1);
function arrived() {
  if (--missing) return;
  tell("transport", socket.io.engine.transport.name);
  socket.disconnect();
}

if (upgrades) socket.io.engine.once("upgrade", arrived);

/** @type {Promise<void>} */
const published = new Promise((resolve) => {
  socket.on("event", (topic) => topic === "stock.1" && resolve());
});

socket.on("connect_error", (error) => tell("connect_error", { message: error.message, data: error.data }));
socket.on("disconnect", (reason) => tell("disconnect", reason));
socket.on("gap", (body) => tell("gap", body));
socket.on("connect", () => tell("connect", socket.io.engine.transport.name));
socket.on("welcome", async (body) => {
  tell("welcome", body);
  tell("refused", await socket.emitWithAck("subscribe", { pattern: "a.b*" }));
  tell("subscribed", await socket.emitWithAck("subscribe", { pattern: "stock.#", overflow: "latest" }));
  tell("published", await socket.emitWithAck("publish", { topic: "stock.1", data: { left: 3, note: "ä\u2028<script>" } }));
  await published; // its event may come after the acknowledgement
  tell("unsubscribed", await socket.emitWithAck("unsubscribe", { pattern: "stock.#" }));
  arrived();
});
socket.on("event", (topic, data, meta) => {
  tell("event", [topic, data, meta]);
  arrived();
});
