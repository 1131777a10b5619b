/**
 * The connection panel: the state of the gate.
 *
 * In: `gate.state`, read once a second and at every change of the connection; whether the user has cut the line; backpressure.
 * Out: figures; the subscribed patterns or, without a connection, the patterns that the client keeps for the next one.
 *
 * @import { Line } from "./line.js"
 */
import { element } from "../../design/element.js";

const PERIOD_MS = 1000;

/** @type {Record<string, string>} */
const STATES = { up: "Live", connecting: "Connecting…", waiting: "Reconnecting…", refused: "Refused", paused: "Paused", closed: "Closed" };
const ON_PURPOSE = "Offline, on purpose";

export class Panel {
  /** @type {Map<string, HTMLElement>} */
  #figures = new Map();
  #received = 0;
  #drawnPatterns = "";

  /**
   * @param {any} gate
   * @param {Line} line
   * @param {{ figures: HTMLElement, subscriptions: HTMLElement, kept: HTMLElement, pill: HTMLElement }} parts
   */
  constructor(gate, line, parts) {
    this.gate = gate;
    this.line = line;
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

  /** Show the gate's present state. */
  draw() {
    const state = this.gate.state;
    const isUp = state.connection === "up";
    // The client does not know that the line is cut, and goes on trying.
    const words = this.line.isCut && !isUp ? ON_PURPOSE : (STATES[state.connection] ?? state.connection);
    document.body.dataset.connection = isUp ? "up" : words === STATES.connecting ? "connecting" : "down";
    write(this.parts.pill, words);
    this.#figure("connection", words);
    this.#figure("bus", isUp ? state.bus : "unknown");
    this.#figure("offset", state.offset ?? "–");
    this.#figure("epoch", state.epoch ?? "–");
    this.#figure("received", state.received);
    this.#figure("waiting", state.waiting);
    this.#figure("missed", `${state.missed} in ${state.gaps}`);
    this.#drawPatterns(Object.entries(state.subscriptions).filter(([, standing]) => !isUp || standing === "active"), !isUp);
    write(this.parts.kept, isUp ? "" : this.#fate(state));
  }

  /** Say when the kept patterns will be subscribed again. @param {any} state @returns {string} */
  #fate({ session, subscriptions }) {
    if (!Object.keys(subscriptions).length) return "";
    if (!session) return "Subscribed as soon as there is a connection:";
    return this.line.isCut ? "Kept, and resumed when you go online:" : "Kept, and resumed with the next connection:";
  }

  #tick() {
    const { received } = this.gate.state;
    this.#figure("rate", Math.max(0, received - this.#received));
    this.#received = received;
    this.draw();
  }

  /** @param {[string, string][]} shown @param {boolean} kept whether the patterns wait for a connection */
  #drawPatterns(shown, kept) {
    const patterns = shown.map(([pattern]) => pattern).sort();
    const drawn = `${kept} ${patterns.join(" ")}`;
    if (this.#drawnPatterns === drawn) return;
    this.#drawnPatterns = drawn;
    const items = patterns.map((text) => element("li", { className: kept ? "kept" : "" }, element("code", { text })));
    this.parts.subscriptions.replaceChildren(...items);
  }

  /** @param {string} name @param {unknown} value */
  #figure(name, value) {
    write(/** @type {HTMLElement} */ (this.#figures.get(name)), String(value));
  }
}

/** Write a text only if it is new: a screen reader reads a status region after every write. @param {HTMLElement} target @param {string} text */
function write(target, text) {
  if (target.textContent !== text) target.textContent = text;
}
