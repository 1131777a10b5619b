/** The page of busy.mjs: renders a table in each frame, from events that come all the time. */
import { connect } from "headgate";

const ROWS = 100;
const query = new URLSearchParams(location.search);
const expected = Number(query.get("events"));
const table = /** @type {HTMLElement} */ (document.querySelector("table"));
const cells = Array.from({ length: ROWS }, () => table.appendChild(document.createElement("tr")).appendChild(document.createElement("td")));
/** The newest event of each row. @type {any[]} */
const newest = [];
const result = { frames: /** @type {number[]} */ ([]), longestFrameMs: 0, received: 0, wrong: 0, gaps: 0, missed: 0, pressure: 0, downs: 0, peakWaiting: 0 };
/** How many events were how late, in ms. @type {number[]} */
const late = [];
let next = 0;

const gate = connect(String(query.get("gateway")));
gate.on("delivery:gap", ({ count, lost }) => {
  result.gaps++;
  if (lost) result.missed += count ?? Infinity;
});
gate.on("delivery:backpressure", () => result.pressure++);
gate.on("connection:down", () => result.downs++);
const subscription = gate.subscribe("orders.#", (order) => {
  if (order.n !== next) result.wrong++;
  next = order.n + 1;
  result.received++;
  newest[order.n % ROWS] = order;
  const ms = Math.max(0, Math.round(Date.now() - order.at));
  late[ms] = (late[ms] ?? 0) + 1;
});

let beganMs = 0;
let frames = 0;
let lastMs = 0;
let seconds = 0;
/** @param {number} nowMs */
function frame(nowMs) {
  for (const [row, order] of newest.entries()) if (order) cells[row].textContent = `${order.n} ${order.status} ${order.at}`;
  const { waiting } = gate.state;
  result.peakWaiting = Math.max(result.peakWaiting, waiting);
  if (result.received) {
    beganMs ||= nowMs;
    if (lastMs) result.longestFrameMs = Math.max(result.longestFrameMs, Math.round(nowMs - lastMs));
    // A second without a frame counts as one.
    while (nowMs - beganMs >= 1000 * (seconds + 1)) {
      result.frames.push(frames);
      frames = 0;
      seconds++;
    }
    frames++;
    lastMs = nowMs;
  }
  if (next < expected) requestAnimationFrame(frame);
  else void fetch("/result", { method: "POST", body: JSON.stringify({ ...result, latencies: percentiles(), agent: navigator.userAgent.replace(/.*(Chrome\/\d+).*/, "$1") }) });
}

function percentiles() {
  const at = (/** @type {number} */ share) => {
    let sum = 0;
    return late.findIndex((count = 0) => {
      sum += count;
      return sum >= share * result.received;
    });
  };
  return { p50: at(0.5), p99: at(0.99), max: late.length - 1 };
}

requestAnimationFrame(frame);
subscription.ready.then(() => fetch("/ready", { method: "POST" }));
