/**
 * Hear an event, in Node, Deno or Bun: `node hear.js https://gateway.example`.
 *
 * It publishes one too, so the gateway must grant that: `headgate serve --dev` does.
 */
const { connect } = await import("headgate").catch(() => {
  console.error("headgate is not installed: npm install --no-save ../../dist/headgate-*.tgz");
  process.exit(1);
});
const [address] = process.argv.slice(2);
// Node 20 has no WebSocket of its own; Node 22, Deno and Bun have.
const { WebSocket } = globalThis.WebSocket ? globalThis : await import("ws");
const gate = connect(address, { WebSocket });

const heard = new Promise((resolve) => {
  gate.subscribe("greetings.*", (data, event) => resolve({ data, topic: event.topic, offset: event.offset }));
});
await gate.subscribed("greetings.*");
const receipt = await gate.publish("greetings.hello", { from: globalThis.navigator?.userAgent ?? "Node" });
const { data, topic, offset } = await heard;
if (offset !== receipt.offset) throw new Error(`heard ${offset}, published ${receipt.offset}`);

// The past, from the log.
await new Promise((resolve) => {
  gate.subscribe("greetings.*", { since: { last: 1 } }, (_data, event) => event.replayed && event.offset === offset && resolve());
});

gate.close();
console.log(`heard ${topic} from ${data.from}; status ${gate.status}`);
