/**
 * The chart of the last minute: events per second upwards, the slowest of them downwards, conditions behind both.
 *
 * In: the pulse's seconds. Out: an SVG, redrawn as a whole: at most a few rectangles per second, once a second. The style sheet
 * gives each class its colour (styles/components/chart.css); the sentence in the aria-label and the table below say the same.
 *
 * @import { Condition, Second } from "./pulse.js"
 */
import { HISTORY_S, runs, summary } from "./pulse.js";

const SVG = "http://www.w3.org/2000/svg";
/** In units of the view box: 10 a second; bars above the axis, delays below. */
const SECOND = 10;
const AXIS = 80;
const HEIGHT = 130;
/** The scales never go below these, so that a quiet minute looks quiet. */
const LEAST_EVENTS = 10;
const LEAST_MS = 1000;

/** @type {Record<Condition, { className: string }>} */
const BANDS = {
  stalled: { className: "is-stalled" },
  offline: { className: "is-offline" },
  "no Redis": { className: "is-without-redis" },
  "catching up": { className: "is-catching-up" },
  backpressure: { className: "is-backpressure" },
};

export class Chart {
  /** @param {Element} svg @param {HTMLElement} most label of the upper scale @param {HTMLElement} slowest label of the lower one */
  constructor(svg, most, slowest) {
    this.svg = svg;
    this.most = most;
    this.slowest = slowest;
    svg.setAttribute("viewBox", `0 0 ${HISTORY_S * SECOND} ${HEIGHT}`);
    svg.setAttribute("preserveAspectRatio", "none");
  }

  /** @param {Second[]} seconds */
  draw(seconds) {
    const most = Math.max(LEAST_EVENTS, ...seconds.map(({ received }) => received));
    const slowest = Math.max(LEAST_MS, ...seconds.map(({ slowestMs }) => slowestMs ?? 0));
    /** @type {Element[]} */
    const behind = [];
    /** @type {Element[]} */
    const bars = [];
    for (const { condition, from, to } of runs(seconds)) {
      behind.push(rect(BANDS[condition], from * SECOND, 0, (to - from) * SECOND, HEIGHT));
    }
    seconds.forEach(({ received, takenBack, slowestMs, notes }, index) => {
      const x = index * SECOND;
      if (notes.length) behind.push(rect({ className: "noted" }, x + SECOND / 2 - 0.75, 0, 1.5, HEIGHT));
      if (received) bars.push(rect({ className: "events" }, x + 1, AXIS * (1 - received / most), SECOND - 2, (AXIS * received) / most));
      // From the top of the bar down: the newest are lost first.
      if (takenBack) bars.push(rect({ className: "taken-back" }, x + 1, AXIS * (1 - received / most), SECOND - 2, (AXIS * takenBack) / most));
      if (slowestMs) bars.push(rect({ className: "delay" }, x + 1, AXIS, SECOND - 2, ((HEIGHT - AXIS) * slowestMs) / slowest));
    });
    this.svg.replaceChildren(...behind, ...bars, rect({ className: "axis" }, 0, AXIS - 0.5, HISTORY_S * SECOND, 1));
    this.svg.setAttribute("aria-label", summary(seconds));
    this.most.textContent = `${most} events/s`;
    this.slowest.textContent = `${(slowest / 1000).toFixed(1)} s to show`;
  }
}

/** @param {{ className: string }} look @param {number} x @param {number} y @param {number} width @param {number} height */
function rect({ className }, x, y, width, height) {
  const made = document.createElementNS(SVG, "rect");
  for (const [name, value] of Object.entries({ class: className, x, y, width, height })) made.setAttribute(name, String(value));
  return made;
}
