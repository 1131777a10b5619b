// The real socket.io-client against a server: `node real_client.mjs <url> '["polling","websocket"]'`. Prints one line of JSON.
import { io } from "socket.io-client";

const [url, transports] = [process.argv[2], JSON.parse(process.argv[3])];
const once = (socket, name) => new Promise((resolve) => socket.once(name, (...args) => resolve(args)));
const watchdog = setTimeout(() => {
  console.error("the server did not answer in time");
  process.exit(1);
}, 60_000);

const socket = io(url, { transports, auth: { token: "abc" }, reconnection: false });
const [auth] = await once(socket, "auth");
const engine = socket.io.engine;
if (transports.length > 1 && engine.transport.name !== "websocket") await new Promise((done) => engine.once("upgrade", done));

const pendingBack = once(socket, "message-back");
socket.emit("message", 1, "zwei", { three: [null] });
const back = await pendingBack;

const acknowledged = await new Promise((resolve) => socket.emit("message-with-ack", 1, 2, (...args) => resolve(args)));

const pendingBinary = once(socket, "message-back");
socket.emit("message", Buffer.from([1, 2, 3]), new Uint8Array([255]));
const binary = (await pendingBinary).map((part) => `buffer:${Buffer.from(part).toString("hex")}`);

const numbers = [];
const all = new Promise((resolve) => socket.on("message-back", (number) => numbers.push(number) === 300 && resolve()));
for (let number = 0; number < 300; number++) socket.emit("message", number);
await all;

const room = socket.io.socket("/room", { auth: { user: "ana" } });
const places = [];
room.on("numbered", (number) => places.push(number));
await new Promise((resolve) => room.emit("burst", 40, 20_000, (answer) => resolve(places.push(answer))));

const stranger = socket.io.socket("/nowhere");
const refusal = once(stranger, "connect_error");
stranger.connect();
const [refused] = await refusal;

const goodbye = once(socket, "goodbye");
const left = once(socket, "disconnect");
socket.emit("leave");
await goodbye;
const [reason] = await left;

clearTimeout(watchdog);
console.log(
  JSON.stringify({
    transport: engine.transport.name,
    auth,
    back,
    acknowledged,
    binary,
    acknowledgedInPlace: places.length === 41 && places.every((place, index) => place === (index < 40 ? index : "behind them")),
    inOrder: numbers.every((number, index) => number === index),
    refused: refused.message,
    goodbye: true,
    reason,
  }),
);
stranger.disconnect();
socket.io.engine.close();
