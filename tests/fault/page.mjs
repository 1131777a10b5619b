// A page that writes down what its handlers see: Headgate's own client, in Node. An array of JSON per line of the journal.
// `node page.mjs <url> <journal> <pattern>`; it ends with its input.
// - ["up", offset]: where its first connection began.  - ["saw", at_s, offset, topic, id]  - ["gap", at_s, from, to, count, reason]
import { openSync, writeSync } from "node:fs";
import WebSocket from "ws";
import { connect } from "../../web/dist/headgate.js";

const [url, path, pattern] = process.argv.slice(2);
const journal = openSync(path, "a");
const write = (...entry) => writeSync(journal, `${JSON.stringify(entry)}\n`);
const now = () => Number(process.hrtime.bigint()) / 1e9; // the clock of Python's time.monotonic

const gate = connect(url, { WebSocket });
let begun = false;
gate.on("connection:up", ({ offset }) => {
  if (!begun) write("up", offset);
  begun = true;
});
gate.on("delivery:gap", ({ from, to, count, reason }) => write("gap", now(), from, to, count, reason));
gate.on("delivery:error", ({ error }) => write("error", String(error)));
gate.on(pattern, (_data, { offset, topic, id }) => write("saw", now(), offset, topic, id));
process.stdin.on("end", () => process.exit(0)).resume();
