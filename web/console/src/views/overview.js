/** The overview: present troubles, key figures, charts, processes, namespaces, Redis. */
import { element } from "../../../design/element.js";
import { bytes, count, counted, duration, milliseconds, percent, short } from "../format.js";
import { Graph } from "../graph.js";
import { Grid } from "../grid.js";
import { page, read } from "../page.js";
import { poll } from "../poll.js";
import { troubles } from "../trouble.js";

/** Time between two requests about Redis and the consumers. */
const ASK_MS = 5000;

/** @type {Record<string, { className: string }>} */
const SEVERITIES = { bad: { className: "trouble is-bad" }, warning: { className: "trouble is-warning" }, good: { className: "trouble is-good" } };
/** @type {import("../trouble.js").Trouble[]} */
const DISCONNECTED = [{ severity: "bad", text: "This page has lost its connection.", remedy: "The numbers below are old." }];

/** @param {import("../main.js").Context} context */
export function overview({ line, history }) {
  const wrong = element("ul", { className: "troubles", role: "list", aria: { label: "What is wrong now" } });
  const tiles = new Tiles();
  const graphs = [
    new Graph("Events published, per second", [{ name: "published", label: "published", tone: "accent", area: true }], short, { least: 5 }),
    new Graph("Events for browsers, per second", [{ name: "routed", label: "routed", tone: "quiet" }, { name: "left", label: "left out", tone: "bad" }, { name: "sent", label: "sent", tone: "accent" }], short, { least: 5 }),
    new Graph("From Redis to the socket", [{ name: "max", label: "max", tone: "quiet" }, { name: "p99", label: "p99", tone: "warning" }, { name: "p90", label: "p90", tone: "info" }, { name: "p50", label: "p50", tone: "accent" }], milliseconds, { log: true, least: 10 }),
  ];
  const processes = new Grid(
    "Gateways and workers",
    [{ label: "Process" }, { label: "State" }, { label: "Up", number: true }, { label: "Clients", number: true }, { label: "Sent/s", number: true }, { label: "Queued", number: true }, { label: "Loop lag p99", number: true }, { label: "Redis p99", number: true }, { label: "CPU", number: true }, { label: "Memory", number: true }],
    "Waiting for the first word of each process.",
  );
  const namespaces = new Grid(
    "Namespaces",
    [{ label: "Namespace" }, { label: "State" }, { label: "Published/s", number: true }, { label: "Clients", number: true }, { label: "Subscriptions", number: true }, { label: "In the log", number: true }, { label: "Oldest", number: true }, { label: "Kept for", number: true }, { label: "Size", number: true }, { label: "Offset", number: true }],
    "Waiting for the first numbers.",
  );
  const redis = new Redis();
  const root = element("div", { className: "stack" }, wrong, tiles.root, element("div", { className: "columns" }, ...graphs.map((graph) => graph.root)), processes.root, element("div", { className: "stack" }, namespaces.root, redis.root));
  /** @type {any[] | null} */
  let servers = null;
  /** @type {any[] | null} */
  let consumers = null;
  /** @type {any[]} */
  let elsewhere = [];

  const gate = line.gate(page.namespaces[0]);
  const draw = () => showTroubles(wrong, line.frame && (gate.isUp ? troubles(line.frame, servers, consumers, elsewhere) : DISCONNECTED), line.frame);
  draw();
  gate.on("status:change", draw);
  const unwatch = line.watch((frame) => {
    draw();
    tiles.show(frame);
    for (const graph of graphs) graph.draw(history);
    processes.show(frame.processes.map((/** @type {any} */ each) => processRow(each, frame.own)));
    namespaces.show(frame.namespaces.map(namespaceRow));
  });

  const polling = poll(
    ASK_MS,
    () => Promise.allSettled([read("api/redis"), read("api/consumers")]),
    ([told, found]) => {
      servers = told.status === "fulfilled" ? told.value.servers : null;
      consumers = found.status === "fulfilled" ? found.value.consumers : null;
      elsewhere = told.status === "fulfilled" ? told.value.elsewhere : [];
      redis.show(servers, told.status === "rejected" ? told.reason.message : "");
    },
    console.error,
  );

  return {
    root,
    close() {
      polling.close();
      unwatch();
      gate.off("status:change", draw);
      for (const graph of graphs) graph.close();
    },
  };
}

/** @param {HTMLElement} target @param {import("../trouble.js").Trouble[] | null} found null: unknown yet @param {any} [frame] */
function showTroubles(target, found, frame) {
  const items = found?.length ? found : [{ severity: "good", text: found ? "Nothing is wrong." : "Waiting for the first numbers.", remedy: found ? calm(frame) : "They come within two seconds." }];
  const drawn = JSON.stringify(items);
  if (target.dataset.drawn === drawn) return;
  target.dataset.drawn = drawn;
  target.replaceChildren(...items.map(({ severity, text, remedy }) => element("li", SEVERITIES[severity], element("strong", { text }), element("span", { className: "remedy", text: remedy }))));
}

/** @param {any} frame */
function calm(frame) {
  const up = frame.namespaces.length;
  return `${counted(frame.processes.length, "process answers", "processes answer")}, and ${counted(up, "namespace is", "namespaces are")} live.`;
}

class Tiles {
  constructor() {
    const names = ["Clients", "Published", "Sent", "Left out", "Delay, p99", "Waiting"];
    this.tiles = names.map((name) => {
      const value = element("span", { text: "–" });
      const unit = element("span", { className: "unit" });
      const about = element("span", { className: "about" });
      return { value, unit, about, root: element("div", { className: "tile" }, element("dt", { text: name }), element("dd", {}, value, unit), element("dd", { className: "about" }, about)) };
    });
    this.root = element("dl", { className: "tiles", aria: { label: "Now" } }, ...this.tiles.map(({ root }) => root));
  }

  /** @param {any} frame */
  show({ rates, latency, now, namespaces }) {
    const left = rates.discarded + rates.conflated;
    /** @type {[string, string, string][]} */
    const values = [
      [count(now.clients), "", `${counted(now.subscriptions, "subscription")}${now.catching_up ? `, ${count(now.catching_up)} catching up` : ""}`],
      [short(rates.published), "/s", counted(namespaces.length, "namespace")],
      [short(rates.sent), "/s", `of ${short(rates.routed + rates.from_log)} for browsers`],
      [short(left), "/s", left ? `${short(rates.discarded)} reported as gaps, ${short(rates.conflated)} conflated` : "nothing is left out"],
      [latency ? milliseconds(latency.p99).split(" ")[0] : "–", latency ? milliseconds(latency.p99).split(" ")[1] : "", latency ? `p50 ${milliseconds(latency.p50)}, max ${milliseconds(latency.max)}` : "no event just now"],
      [count(now.waiting), "", now.waiting ? `fullest queue ${percent(now.fullest)}, oldest ${duration(now.oldest_s)}` : "every queue is empty"],
    ];
    values.forEach(([value, unit, about], at) => {
      const tile = this.tiles[at];
      write(tile.value, value);
      write(tile.unit, unit);
      write(tile.about, about);
    });
  }
}

/** @param {any} each @param {string} own @returns {import("../grid.js").Row} */
function processRow(each, own) {
  return {
    key: each.id,
    cells: [
      `${each.name}${each.id === own ? " (this page)" : ""}`,
      stateOf(each),
      duration(Math.max(0, (Date.now() - each.began_ms) / 1000)),
      count(each.clients),
      short(each.sent),
      each.waiting ? `${count(each.waiting)} (${bytes(each.queued_bytes)})` : "0",
      milliseconds(each.lag?.p99),
      milliseconds(each.redis?.p99),
      percent(each.cpu),
      bytes(each.memory_bytes),
    ],
  };
}

/** @param {any} each @returns {import("../grid.js").Cell} */
function stateOf(each) {
  if (each.silent_s) return { text: `silent for ${duration(each.silent_s)}`, tone: "bad" };
  if (!each.bus_up) return { text: "without Redis", tone: "bad" };
  if (!each.revocations_known) return { text: "lets nobody in", tone: "bad" };
  if (each.admission !== "admitting") return { text: each.admission, tone: "warning" };
  if (each.draining) return { text: "leaving", tone: "warning" };
  return each.paused.length ? { text: "paused", tone: "warning" } : { text: "live", tone: "good" };
}

/** @param {any} each @returns {import("../grid.js").Row} */
export function namespaceRow(each) {
  const up = each.bus_up === each.processes;
  return {
    key: each.name,
    cells: [
      `/${each.name}`,
      { text: up ? "live" : `${count(each.processes - each.bus_up)} of ${count(each.processes)} down`, tone: up ? "good" : "bad" },
      short(each.rates.published),
      count(each.clients),
      count(each.subscriptions),
      count(each.log_events),
      each.log_events ? duration(each.log_oldest_s) : "–",
      duration(each.log_retention_s || null),
      bytes(each.log_bytes),
      count(each.head),
    ],
  };
}

/** The servers' own figures of Redis. */
class Redis {
  constructor() {
    this.none = element("p", { className: "none", text: "Redis is being asked." });
    this.body = element("div");
    this.root = element("section", { className: "panel", aria: { labelledby: "redis-title" } }, element("div", { className: "panel-head" }, element("h2", { id: "redis-title", text: "Redis" })), this.none, this.body);
  }

  /** @param {any[] | null} servers @param {string} fault */
  show(servers, fault) {
    this.none.hidden = servers !== null;
    if (fault) write(this.none, `Redis could not be asked: ${fault}`);
    this.body.replaceChildren(...(servers ?? []).map(facts));
  }
}

/** @param {any} server */
function facts(server) {
  const name = server.valkey_version ? `Valkey ${server.valkey_version}` : `Redis ${server.redis_version}`;
  const memory = server.maxmemory ? `${bytes(server.used_memory)} of ${bytes(server.maxmemory)}` : `${bytes(server.used_memory)}, no limit`;
  /** @type {[string, string][]} */
  const pairs = [
    ["Server", name],
    ["Address", server.address],
    ["Role", server.role === "slave" ? "replica" : `primary, ${counted(server.connected_slaves, "replica")}`],
    ["Up", duration(server.uptime_in_seconds)],
    ["Memory", `${memory}, ${server.maxmemory_policy}`],
    ["Disk", server.aof_enabled ? "append-only file" : "no append-only file"],
    ["Connections", count(server.connected_clients)],
    ["Commands", `${short(server.instantaneous_ops_per_sec)}/s`],
  ];
  return element("dl", { className: "facts" }, ...pairs.map(([label, value]) => element("div", {}, element("dt", { text: label }), element("dd", { text: value }))));
}

/** @param {HTMLElement} target @param {string} text */
function write(target, text) {
  if (target.textContent !== text) target.textContent = text;
}
