// The Node peer: socket.io with its Redis adapter, set up as its documentation says.
//
//   node.js serve PORT REDIS_SOCKET NAMESPACE   serve until killed; prints `ready` when it listens
//   node.js emit REDIS_SOCKET NAMESPACE [ROOM]  emit the JSON on standard input once, from outside, as `event`
//
// A client that connects to the namespace gets every event that is emitted without a room, and enters the rooms that its `auth`
// names. No authentication, the defaults.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createAdapter } from "@socket.io/redis-adapter";
import { createClient } from "redis";
import { Server } from "socket.io";

async function createGateway(http, socketPath, namespace) {
  const publisher = createClient({ socket: { path: socketPath } });
  const subscriber = publisher.duplicate();
  await Promise.all([publisher.connect(), subscriber.connect()]);
  const io = new Server(http, { adapter: createAdapter(publisher, subscriber) });
  return { gate: io.of(namespace), publisher };
}

async function serve(port, socketPath, namespace) {
  const http = createServer();
  const { gate } = await createGateway(http, socketPath, namespace);
  gate.on("connection", (socket) => socket.join(socket.handshake.auth.rooms ?? []));
  http.listen({ host: "127.0.0.1", port, backlog: 4096 }, () => console.log("ready"));
}

async function emit(socketPath, namespace, room) {
  const { gate, publisher } = await createGateway(createServer(), socketPath, namespace);
  (room ? gate.to(room) : gate).emit("event", JSON.parse(readFileSync(0, "utf8")));
  await publisher.ping(); // commands of one connection keep their order: the emit has been sent
  process.exit(0);
}

const [verb, ...words] = process.argv.slice(2);
await (verb === "serve" ? serve(Number(words[0]), words[1], words[2]) : emit(...words));
