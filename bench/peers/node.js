// The Node peer: socket.io with one of its adapters for Redis, set up as its documentation says.
//
//   node.js ADAPTER serve PORT REDIS_SOCKET NAMESPACE   serve until killed; prints `ready` when it listens
//   node.js ADAPTER emit REDIS_SOCKET NAMESPACE [ROOM]  emit the JSON on standard input once, from outside, as `event`
//
// ADAPTER is `redis`, or `streams` with connection state recovery. A client that connects to the namespace gets every event that is
// emitted without a room, and enters the rooms that its `auth` names. No authentication, the defaults.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createAdapter as createRedisAdapter } from "@socket.io/redis-adapter";
import { createAdapter as createStreamsAdapter } from "@socket.io/redis-streams-adapter";
import { createClient } from "redis";
import { Server } from "socket.io";

const RECOVERY = { maxDisconnectionDuration: 2 * 60 * 1000 };

async function createGateway(http, adapter, socketPath, namespace) {
  const publisher = createClient({ socket: { path: socketPath } });
  await publisher.connect();
  if (adapter === "streams") {
    const io = new Server(http, { adapter: createStreamsAdapter(publisher), connectionStateRecovery: RECOVERY });
    return { gate: io.of(namespace), publisher };
  }
  const subscriber = publisher.duplicate();
  await subscriber.connect();
  const io = new Server(http, { adapter: createRedisAdapter(publisher, subscriber) });
  return { gate: io.of(namespace), publisher };
}

async function serve(adapter, port, socketPath, namespace) {
  const http = createServer();
  const { gate } = await createGateway(http, adapter, socketPath, namespace);
  gate.on("connection", (socket) => socket.join(socket.handshake.auth.rooms ?? []));
  http.listen({ host: "127.0.0.1", port, backlog: 4096 }, () => console.log("ready"));
}

async function emit(adapter, socketPath, namespace, room) {
  const { gate, publisher } = await createGateway(createServer(), adapter, socketPath, namespace);
  (room ? gate.to(room) : gate).emit("event", JSON.parse(readFileSync(0, "utf8")));
  await publisher.ping(); // commands of one connection keep their order: the emit has been sent
  process.exit(0);
}

const [adapter, verb, ...words] = process.argv.slice(2);
await (verb === "serve" ? serve(adapter, Number(words[0]), words[1], words[2]) : emit(adapter, ...words));
