// Pages that write down what their handlers see: Headgate's own client, many times, in Node. An array of JSON per line of the journal.
// `node pages.mjs <url> <journal>` takes such arrays as its input, a line each, and ends with it:
// - ["open", page, options, patterns, room]: `options` of `connect`, `room` to be in or null.  - ["close", page]
// - ["subscribe", page, pattern]  - ["unsubscribe", page, pattern]
// Every entry of the journal is [kind, page, at_s, …]:
// - up: offset where its first connection began.  - saw: offset, topic, id.  - gap: from, to, count, reason.  - error: text.
// - subscribed, unsubscribed: pattern, once it is acknowledged, before it is asked for.  - room: the users who are in it.
// - status: of the gate, and why it has changed.
import { openSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";
import WebSocket from "ws";
import { connect } from "../../web/dist/headgate.js";
import { presence } from "../../web/dist/headgate.presence.js";

const [url, path] = process.argv.slice(2);
const journal = openSync(path, "a");
const now = () => Number(process.hrtime.bigint()) / 1e9; // the clock of Python's time.monotonic
const write = (kind, page, ...entry) => writeSync(journal, `${JSON.stringify([kind, page, now(), ...entry])}\n`);

/** By page: its gate, and its subscriptions by pattern. */
const pages = new Map();

const commands = {
  open(page, options, patterns, room) {
    const gate = connect(url, { WebSocket, ...options });
    pages.set(page, { gate, subscriptions: new Map() });
    let begun = false;
    gate.on("connection:up", ({ offset }) => {
      if (!begun) write("up", page, offset);
      begun = true;
    });
    gate.on("delivery:gap", ({ from, to, count, reason }) => write("gap", page, from, to, count, reason));
    gate.on("delivery:error", ({ error }) => write("error", page, String(error)));
    gate.on("status:change", ({ status, reason }) => write("status", page, status, reason));
    gate.on("connection:refused", (error) => error.retry || write("error", page, String(error)));
    for (const pattern of patterns) follow(page, pattern);
    if (!room) return;
    const members = presence(gate, room);
    members.on("change", () => members.status === "live" && write("room", page, members.members.map(({ user }) => user)));
    members.on("presence:error", (error) => write("error", page, String(error)));
  },

  async subscribe(page, pattern) {
    try {
      await follow(page, pattern).ready;
      write("subscribed", page, pattern);
    } catch (error) {
      if (error.code !== "disconnected") throw error; // it was closed before it was acknowledged
    }
  },

  unsubscribe(page, pattern) {
    write("unsubscribed", page, pattern);
    pages.get(page).subscriptions.get(pattern).close();
  },

  close(page) {
    pages.get(page).gate.close();
  },
};

function follow(page, pattern) {
  const { gate, subscriptions } = pages.get(page);
  const subscription = gate.subscribe(pattern, (_data, { offset, topic, id }) => write("saw", page, offset, topic, id));
  subscriptions.set(pattern, subscription);
  return subscription;
}

createInterface({ input: process.stdin })
  .on("line", (line) => {
    const [name, page, ...rest] = JSON.parse(line);
    Promise.resolve(commands[name](page, ...rest)).catch((error) => write("error", page, String(error)));
  })
  .on("close", () => process.exit(0));
