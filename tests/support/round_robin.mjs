// A proxy without sticky sessions: each HTTP request, and each upgrade, goes to the next of the ports, over connections that it keeps.
// `node round_robin.mjs <port> <upstream port>…` prints its port; it ends with its standard input.
import http from "node:http";
import net from "node:net";

const [own, ...upstreams] = process.argv.slice(2).map(Number);
const agent = new http.Agent({ keepAlive: true });
let turn = 0;
const next = () => upstreams[turn++ % upstreams.length];

const server = http.createServer((request, answer) => {
  const { method, url, headers } = request;
  const forwarded = http.request({ host: "127.0.0.1", port: next(), method, path: url, headers, agent }, (found) => {
    const { connection, "keep-alive": _, ...rest } = found.headers;
    answer.writeHead(found.statusCode, found.statusMessage, rest);
    found.pipe(answer);
  });
  forwarded.on("error", () => (answer.headersSent ? answer.destroy() : answer.writeHead(502).end()));
  answer.on("close", () => answer.writableFinished || forwarded.destroy());
  request.pipe(forwarded);
});

server.on("upgrade", (request, socket, head) => {
  const upstream = net.connect(next(), "127.0.0.1");
  const lines = [`${request.method} ${request.url} HTTP/1.1`];
  for (let at = 0; at < request.rawHeaders.length; at += 2) lines.push(`${request.rawHeaders[at]}: ${request.rawHeaders[at + 1]}`);
  upstream.setNoDelay(true);
  socket.setNoDelay(true);
  upstream.write(`${lines.join("\r\n")}\r\n\r\n`);
  upstream.write(head);
  upstream.pipe(socket);
  socket.pipe(upstream);
  for (const [one, other] of [[upstream, socket], [socket, upstream]]) {
    one.on("error", () => other.destroy());
    one.on("close", () => other.destroy());
  }
});

server.listen(own, "127.0.0.1", () => console.log(server.address().port));
process.stdin.on("end", () => process.exit(0)).resume();
