// A proxy without sticky sessions and without WebSockets. Each HTTP request goes to the next of the ports, over connections that it keeps.
// `node round_robin.mjs <stream | buffer> <upstream port>…` prints its port, and ends with its input. `buffer` gives an answer back when
// all of it has come. A dead upstream is a 502, or a cut in the middle of an answer. For a line `<share>` of its input it cuts this share
// of the present requests.
import http from "node:http";
import { createInterface } from "node:readline";

const [mode, ...upstreams] = process.argv.slice(2);
const agent = new http.Agent({ keepAlive: true });
const underWay = new Set();
let turn = 0;

const server = http.createServer((request, answer) => {
  const { method, url, headers } = request;
  const port = upstreams[turn++ % upstreams.length];
  const forwarded = http.request({ host: "127.0.0.1", port, method, path: url, headers, agent }, (found) => {
    const { connection, "keep-alive": _, ...rest } = found.headers;
    const parts = [];
    const begin = () => answer.writeHead(found.statusCode, found.statusMessage, rest);
    found.on("error", () => answer.destroy());
    if (mode === "stream") begin().flushHeaders();
    found.on("data", (part) => (mode === "stream" ? answer.write(part) : parts.push(part)));
    found.on("end", () => (mode === "stream" ? answer.end() : begin().end(Buffer.concat(parts))));
  });
  underWay.add(forwarded);
  forwarded.on("error", () => (answer.headersSent ? answer.destroy() : answer.writeHead(502).end()));
  forwarded.on("close", () => underWay.delete(forwarded));
  answer.on("close", () => answer.writableFinished || forwarded.destroy());
  request.pipe(forwarded);
});

server.on("upgrade", (_request, socket) => {
  socket.on("error", () => {}); // a page that has left since
  socket.end("HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
createInterface({ input: process.stdin })
  .on("line", (share) => {
    for (const each of underWay) if (Math.random() < Number(share)) each.destroy(new Error("cut"));
  })
  .on("close", () => process.exit(0));
