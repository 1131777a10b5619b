/**
 * The connection panel: what the gate says about itself.
 *
 * In: `gate.state`, read once a second and whenever the connection changes; backpressure. Out: figures, the patterns that are
 * subscribed.
 */
import { element } from "./element.js";

const PERIOD_MS = 1000;

/** @type {Record<string, string>} */
const STATES = { up: "Live", connecting: "Connecting…", waiting: "Reconnecting…", refused: "Refused", paused: "Paused", closed: "Closed" };

export class Panel {
  /** @type {Map<string, HTMLElement>} */
  #figures = new Map();
  #received = 0;
  #drawnPatterns = "";

  /**
   * @param {any} gate
   * @param {{ figures: HTMLElement, subscriptions: HTMLElement, pill: HTMLElement }} parts
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
      ["waiting", "Waiting in this tab"],
      ["backpressure", "Backpressure"],
      ["missed", "Missed in gaps"],
    ]) {
      const value = element("dd", { id: `figure-${name}`, text: "–" });
      this.#figures.set(name, value);
      parts.figures.append(element("dt", { text: label }), value);
    }
    this.#figure("backpressure", "none");
    gate.on("delivery:backpressure", (/** @type {any} */ { state, queued }) => {
      this.#figure("backpressure", state === "off" ? "none" : `${state}, ${queued} queued`);
    });
    gate.on("connection:up", () => this.#figure("backpressure", "none"));
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
    this.#figure("waiting", state.waiting);
    this.#figure("missed", `${state.missed} in ${state.gaps}`);
    this.#drawPatterns(Object.entries(state.subscriptions).filter(([, standing]) => standing === "active"));
  }

  #tick() {
    const { received } = this.gate.state;
    this.#figure("rate", Math.max(0, received - this.#received));
    this.#received = received;
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
