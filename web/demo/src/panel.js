/**
 * The connection panel: what the gate says about itself, and how many events a second come in.
 *
 * In: `gate.state`, read once a second and whenever the connection changes. Out: figures, a line of the last minute, the
 * patterns that are subscribed.
 */
import { element } from "./element.js";

const HISTORY_S = 60;
const PERIOD_MS = 1000;
const LINE_HEIGHT = 40;

/** @type {Record<string, string>} */
const STATES = { up: "Live", connecting: "Connecting…", waiting: "Reconnecting…", refused: "Refused", paused: "Paused", closed: "Closed" };

export class Panel {
  /** @type {Map<string, HTMLElement>} */
  #figures = new Map();
  /** @type {number[]} events in each second, newest last */
  #perSecond = new Array(HISTORY_S).fill(0);
  #received = 0;
  #drawnPatterns = "";

  /**
   * @param {any} gate
   * @param {{ figures: HTMLElement, spark: Element, subscriptions: HTMLElement, pill: HTMLElement }} parts
   */
  constructor(gate, parts) {
    this.gate = gate;
    this.parts = parts;
    for (const [name, label] of [
      ["connection", "State"],
      ["bus", "Bus"],
      ["offset", "Last offset"],
      ["epoch", "Epoch"],
      ["rate", "Events per second"],
      ["received", "Received"],
      ["missed", "Missed in gaps"],
    ]) {
      const value = element("dd", { id: `figure-${name}`, text: "–" });
      this.#figures.set(name, value);
      parts.figures.append(element("dt", { text: label }), value);
    }
    setInterval(() => this.#tick(), PERIOD_MS);
    this.draw();
  }

  /** Show the gate's state as it is now. */
  draw() {
    const state = this.gate.state;
    const words = STATES[state.connection] ?? state.connection;
    document.body.dataset.connection = state.connection === "up" ? "up" : state.connection === "connecting" ? "connecting" : "down";
    write(this.parts.pill, words);
    this.#figure("connection", words);
    this.#figure("bus", state.bus ?? "–");
    this.#figure("offset", state.offset ?? "–");
    this.#figure("epoch", state.epoch ?? "–");
    this.#figure("received", state.received);
    this.#figure("missed", `${state.missed} in ${state.gaps}`);
    this.#drawPatterns(Object.entries(state.subscriptions).filter(([, standing]) => standing === "active"));
  }

  #tick() {
    const { received } = this.gate.state;
    this.#perSecond.push(Math.max(0, received - this.#received));
    this.#perSecond.shift();
    this.#received = received;
    this.#figure("rate", this.#perSecond.at(-1) ?? 0);
    const most = Math.max(5, ...this.#perSecond);
    const points = this.#perSecond.map((count, second) => `${second},${(LINE_HEIGHT - 2) * (1 - count / most) + 1}`);
    this.parts.spark.querySelector("polyline")?.setAttribute("points", points.join(" "));
    this.draw();
  }

  /** @param {[string, string][]} active */
  #drawPatterns(active) {
    const patterns = active.map(([pattern]) => pattern).sort();
    if (this.#drawnPatterns === patterns.join(" ")) return;
    this.#drawnPatterns = patterns.join(" ");
    this.parts.subscriptions.replaceChildren(...patterns.map((text) => element("li", {}, element("code", { text }))));
  }

  /** @param {string} name @param {unknown} value */
  #figure(name, value) {
    write(/** @type {HTMLElement} */ (this.#figures.get(name)), String(value));
  }
}

/** Leave alone what says it already: a status region is read out whenever it is written. @param {HTMLElement} target @param {string} text */
function write(target, text) {
  if (target.textContent !== text) target.textContent = text;
}
