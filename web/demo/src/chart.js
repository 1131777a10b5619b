/**
 * The chart of the last minute: events per second upwards, the slowest of them downwards, conditions behind both, and words where
 * something happened: offline, caught up, 8 taken back, nothing lost.
 *
 * In: the pulse's seconds. Out: an SVG and the words over it, redrawn as a whole: at most a few rectangles per second, once a second. The
 * style sheet gives each class its colour (styles/components/chart.css); the sentence in the aria-label and the table below say the same.
 *
 * @import { Condition, Second } from "./pulse.js"
 */
import { element } from "../../design/element.js";
import { placed } from "./marks.js";
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
  /** @type {{ text: string, at: number }[]} */
  #marks = [];

  /** @param {Element} svg @param {HTMLElement} words @param {HTMLElement} most label of the upper scale @param {HTMLElement} slowest label of the lower one */
  constructor(svg, words, most, slowest) {
    this.svg = svg;
    this.words = words;
    this.most = most;
    this.slowest = slowest;
    svg.setAttribute("viewBox", `0 0 ${HISTORY_S * SECOND} ${HEIGHT}`);
    svg.setAttribute("preserveAspectRatio", "none");
    new ResizeObserver(() => this.#write()).observe(words);
  }

  /** @param {Second[]} seconds */
  draw(seconds) {
    const most = Math.max(LEAST_EVENTS, ...seconds.map(({ received }) => received));
    const slowest = Math.max(LEAST_MS, ...seconds.map(({ slowestMs }) => slowestMs ?? 0));
    /** @type {Element[]} */
    const behind = [];
    /** @type {{ text: string, at: number }[]} */
    const marks = [];
    /** @type {Element[]} */
    const bars = [];
    for (const { condition, from, to } of runs(seconds)) {
      behind.push(rect(BANDS[condition], from * SECOND, 0, (to - from) * SECOND, HEIGHT));
      marks.push({ text: condition, at: from });
    }
    seconds.forEach(({ received, takenBack, slowestMs, notes, marks: said }, index) => {
      const x = index * SECOND;
      marks.push(...said.map((text) => ({ text, at: index })));
      if (notes.length) behind.push(rect({ className: "noted" }, x + SECOND / 2 - 0.75, 0, 1.5, HEIGHT));
      if (received) bars.push(rect({ className: "events" }, x + 1, AXIS * (1 - received / most), SECOND - 2, (AXIS * received) / most));
      // From the top of the bar down: the newest are lost first.
      if (takenBack) bars.push(rect({ className: "taken-back" }, x + 1, AXIS * (1 - received / most), SECOND - 2, (AXIS * takenBack) / most));
      if (slowestMs) bars.push(rect({ className: "delay" }, x + 1, AXIS, SECOND - 2, ((HEIGHT - AXIS) * slowestMs) / slowest));
    });
    this.svg.replaceChildren(...behind, ...bars, rect({ className: "axis" }, 0, AXIS - 0.5, HISTORY_S * SECOND, 1));
    this.svg.setAttribute("aria-label", summary(seconds));
    this.#marks = marks;
    this.#write();
    this.most.textContent = `${most} events/s`;
    this.slowest.textContent = `${(slowest / 1000).toFixed(1)} s to show`;
  }

  /** New elements each time: one that is moved would count as a shift of the layout. */
  #write() {
    const { clientWidth: width, clientHeight: height } = this.words;
    const places = this.#marks.map(({ text, at }) => ({ text, x: (at / HISTORY_S) * width }));
    this.words.replaceChildren(
      ...placed(places, width, height).map(({ text, left, top }) => {
        const word = element("span", { text });
        word.style.left = `${left}px`;
        word.style.top = `${top}px`;
        return word;
      }),
    );
  }
}

/** @param {{ className: string }} look @param {number} x @param {number} y @param {number} width @param {number} height */
function rect({ className }, x, y, width, height) {
  const made = document.createElementNS(SVG, "rect");
  for (const [name, value] of Object.entries({ class: className, x, y, width, height })) made.setAttribute(name, String(value));
  return made;
}
