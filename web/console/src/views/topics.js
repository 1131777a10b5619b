/**
 * Namespaces and their logs; topics by traffic, counted while this view is open.
 *
 * In: frames, and the topics of the log's newest events every two seconds. If more were published than are read, those
 * that were read are taken as a sample.
 */
import { element } from "../../../design/element.js";
import { field, namespaceSelect, select } from "../fields.js";
import { bytes, count, duration, milliseconds, percent, short } from "../format.js";
import { Grid } from "../grid.js";
import { page, read } from "../page.js";
import { grouped, TopTopics } from "../top-topics.js";

const ASK_MS = 2000;
const SHOWN = 50;

/** @param {import("../main.js").Context} context */
export function topics({ line }) {
  const logs = new Grid(
    "Namespaces and their logs",
    [{ label: "Namespace" }, { label: "State" }, { label: "Published/s", number: true }, { label: "Sent/s", number: true }, { label: "Delay p99", number: true }, { label: "Offset", number: true }, { label: "In the log", number: true }, { label: "Oldest", number: true }, { label: "Kept for", number: true }, { label: "Size", number: true }, { label: "Epoch" }],
    "Waiting for the first numbers.",
  );
  const namespace = namespaceSelect(page.namespaces);
  const by = select([["group", "ids as *"], ["topic", "each topic"]]);
  const grid = new Grid("Topics by traffic", [{ label: "Topic", wide: true }, { label: "Events", number: true }, { label: "Share", number: true }, { label: "Events/s", number: true }, { label: "Bytes each", number: true }], "Counting from now on. A topic appears with its first event.");
  grid.head.append(element("div", { className: "row" }, ...(page.namespaces.length > 1 ? [field("Namespace", namespace)] : []), field("Show", by)));
  const root = element("div", { className: "stack" }, logs.root, grid.root, grid.outcome.root);

  let seen = new TopTopics();
  let groups = new TopTopics();
  let beganMs = performance.now();
  /** The newest counted offset; null before the first read. @type {number | null} */
  let newest = null;

  const unwatch = line.watch((frame) => logs.show(frame.namespaces.map(logRow)));

  function begin() {
    seen = new TopTopics();
    groups = new TopTopics();
    beganMs = performance.now();
    newest = null;
    draw();
    polling.ask();
  }

  const ask = () => read("api/topics", { namespace: namespace.value, after: newest === null ? "" : String(newest) });
  const polling = grid.poll(ASK_MS, "The topics", ask, ({ events }) => {
    if (newest !== null && events.length) {
      const weight = Math.max(1, (events[0][0] - newest) / events.length);
      for (const [, topic, size] of events) {
        seen.add(topic, size, weight);
        groups.add(grouped(topic), size, weight);
      }
    }
    newest = events[0]?.[0] ?? newest ?? 0;
    draw();
  });

  function draw() {
    const table = by.value === "group" ? groups : seen;
    const seconds = Math.max(1, (performance.now() - beganMs) / 1000);
    grid.show(
      table.top(SHOWN).map(({ topic, events, bytes: size, error }) => ({
        key: topic,
        cells: [topic, `${error ? "≤ " : ""}${count(events)}`, percent(events / Math.max(1, table.events)), short(events / seconds), bytes(size / Math.max(1, events - error))],
      })),
    );
  }

  namespace.addEventListener("change", begin);
  by.addEventListener("change", draw);
  draw();
  return {
    root,
    close() {
      polling.close();
      unwatch();
    },
  };
}

/** @param {any} each @returns {import("../grid.js").Row} */
function logRow(each) {
  const up = each.bus_up === each.processes;
  return {
    key: each.name,
    cells: [
      `/${each.name}`,
      { text: up ? "live" : "not live", tone: up ? "good" : "bad" },
      short(each.rates.published),
      short(each.rates.sent),
      milliseconds(each.latency?.p99),
      count(each.head),
      count(each.log_events),
      each.log_events ? `${duration(each.log_oldest_s)} of ${duration(page.limits.log_max_age_s)}` : "–",
      duration(each.log_retention_s || null),
      bytes(each.log_bytes),
      each.epoch ?? "–",
    ],
  };
}
