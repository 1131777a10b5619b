/**
 * A graph: lines over the last five minutes, drawn by uPlot, with the newest values as text in its legend.
 *
 * In: the history, once a second. Out: a figure. The colours are the design's tokens, read again when the reader's colour scheme changes. The canvas has a
 * label for screen readers.
 *
 * @import { History } from "./history.js"
 * @typedef {"accent" | "info" | "good" | "warning" | "bad" | "quiet"} Tone
 * @typedef {{ name: string, label: string, tone: Tone, area?: boolean }} Series
 */
import uPlot from "uplot";
import { element } from "../../design/element.js";
import { MOST } from "./history.js";

const HEIGHT = 190;
const AXIS = 48;
/** At least one minute is drawn, at most five. */
const LEAST_S = 60;
/** @type {Record<Tone, string>} */
const TOKENS = { accent: "accent", info: "info", good: "good", warning: "warning", bad: "bad", quiet: "line-strong" };
/** @type {Record<Tone, { className: string }>} */
const LOOKS = {
  accent: { className: "is-accent" },
  info: { className: "is-info" },
  good: { className: "is-good" },
  warning: { className: "is-warning" },
  bad: { className: "is-bad" },
  quiet: { className: "is-quiet" },
};

export class Graph {
  #values = new Map();
  /** @type {uPlot | null} */
  #plot = null;
  #dark = matchMedia("(prefers-color-scheme: dark)");
  #recolour = () => this.#remake();

  /**
   * @param {string} title
   * @param {Series[]} series
   * @param {(value: number | null) => string} words formats a value for the legend and the scale
   * @param {{ log?: boolean, least: number }} scale `least`: the top of the scale is never below it, so that little traffic looks small
   */
  constructor(title, series, words, scale) {
    this.title = title;
    this.series = series;
    this.words = words;
    this.scale = scale;
    this.waiting = element("p", { className: "waiting", text: "The first seconds are being measured." });
    this.canvas = element("div", { className: "canvas" }, this.waiting);
    this.canvas.setAttribute("role", "img");
    const legend = series.map(({ name, label, tone }) => {
      const value = element("span", { className: "value", text: "–" });
      this.#values.set(name, value);
      return element("li", LOOKS[tone], element("span", { className: "soft", text: label }), value);
    });
    this.root = element("figure", { className: "box graph" }, element("figcaption", { text: title }), this.canvas, element("ul", { className: "lines" }, ...legend));
    this.#label(null);
    this.size = new ResizeObserver(() => this.#plot?.setSize({ width: this.canvas.clientWidth, height: HEIGHT }));
    this.size.observe(this.canvas);
    this.#dark.addEventListener("change", this.#recolour);
  }

  /** @param {History} history */
  draw(history) {
    for (const { name } of this.series) {
      const words = this.words(history.newest(name));
      const value = this.#values.get(name);
      if (value.textContent !== words) value.textContent = words;
    }
    if (history.length < 2) return;
    this.history = history;
    this.waiting.hidden = true;
    const columns = /** @type {uPlot.AlignedData} */ (history.columns(this.series.map(({ name }) => name)));
    if (this.#plot) this.#plot.setData(columns);
    else this.#make(columns);
    this.#label(history);
  }

  /** Remove the plot and all listeners. */
  close() {
    this.size.disconnect();
    this.#dark.removeEventListener("change", this.#recolour);
    this.#plot?.destroy();
  }

  /** @param {History | null} history */
  #label(history) {
    const parts = this.series.map(({ name, label }) => `${label} ${this.words(history?.newest(name) ?? null)}, at most ${this.words(history?.greatest(name) ?? null)}`);
    this.canvas.setAttribute("aria-label", `${this.title}, the last five minutes: ${parts.join("; ")}`);
  }

  #remake() {
    if (!this.#plot || !this.history) return;
    this.#plot.destroy();
    this.#make(/** @type {uPlot.AlignedData} */ (this.history.columns(this.series.map(({ name }) => name))));
  }

  /** @param {uPlot.AlignedData} columns */
  #make(columns) {
    const { log, least } = this.scale;
    const font = `11px ${getComputedStyle(document.body).fontFamily}`;
    const axis = { stroke: this.#colour("ink-soft"), font, grid: { stroke: this.#colour("line"), width: 1 }, ticks: { show: false } };
    this.#plot = new uPlot(
      {
        width: this.canvas.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
        padding: [8, 22, 0, 0],
        scales: {
          x: { time: true, range: (_plot, from, to) => [Math.max(to - MOST, Math.min(from, to - LEAST_S)), to] },
          y: {
            distr: log ? 3 : 1,
            range: (_plot, from, to) => (log ? [10 ** Math.floor(Math.log10(Math.max(0.01, from ?? 1))), 10 ** Math.ceil(Math.log10(Math.max(least, to ?? 1)))] : [0, Math.max(least, (to ?? 0) * 1.1)]),
          },
        },
        axes: [
          { ...axis, grid: { show: false }, size: 24, gap: 6, values: [[60, "{HH}:{mm}", null, null, null, null, null, null, 1], [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]], space: 80 },
          { ...axis, size: AXIS, gap: 6, space: 36, ...(log && { splits: powers }), values: (_plot, splits) => splits.map((each) => (each === null ? "" : this.words(each))) },
        ],
        series: [{}, ...this.series.map(({ label, tone, area }) => ({ label, stroke: this.#colour(TOKENS[tone]), fill: area ? this.#colour("accent-wash") : undefined, width: 1.5, points: { show: false }, spanGaps: false }))],
      },
      columns,
      this.canvas,
    );
  }

  /** Return the present value of a token. Only the browser knows whether its light or its dark side applies. @param {string} name */
  #colour(name) {
    const probe = element("i", { hidden: true });
    probe.style.color = `var(--color-${name})`;
    document.body.append(probe);
    const { color } = getComputedStyle(probe);
    probe.remove();
    return color;
  }
}

/**
 * The lines of a logarithmic scale, one for each power of ten.
 * @param {uPlot} _plot @param {number} _axis @param {number} from @param {number} to
 */
function powers(_plot, _axis, from, to) {
  const first = Math.floor(Math.log10(from));
  return Array.from({ length: Math.round(Math.log10(to)) - first + 1 }, (_, step) => 10 ** (first + step));
}
