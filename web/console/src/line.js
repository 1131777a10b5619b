/**
 * The line: this page's connections to the gateway, one for each namespace that a view needs. The first of them also carries the statistics.
 *
 * In: a ticket from the server for each CONNECT, or nothing if the application has its own authenticator. Out: a frame each second for each
 * watcher; the state of the connection as text. A hidden page requests nothing.
 *
 * @typedef {(frame: any) => void} Watcher
 */
import { connect } from "headgate";
import { page, read } from "./page.js";

const EVERY_MS = 1000;
const VITALS = "vitals";

/** @type {Record<string, string>} */
const WORDS = { live: "Live", catching_up: "Live", moving: "Live", connecting: "Connecting…", resuming: "Connecting…", waiting: "Disconnected. Trying again…", paused: "Paused", refused: "Refused", closed: "Closed" };

export class Line {
  /** @type {Map<string, import("../../src/gate.js").Gate>} */
  #gates = new Map();
  /** @type {Set<Watcher>} */
  #watchers = new Set();
  #asking = false;

  /** @param {(state: "up" | "connecting" | "down", words: string) => void} tell */
  constructor(tell) {
    this.tell = tell;
    /** The newest frame. @type {any} */
    this.frame = null;
    const first = this.gate(page.namespaces[0]);
    first.on("status:change", ({ status }) => this.#say(status));
    first.on("connection:up", () => this.#ask());
    first.on("connection:refused", (/** @type {any} */ error) => this.tell("down", `Refused: ${error.message}`));
    setInterval(() => this.#ask(), EVERY_MS);
    document.addEventListener("visibilitychange", () => this.#ask());
  }

  /** Return the connection to a namespace. @param {string} namespace */
  gate(namespace) {
    let gate = this.#gates.get(namespace);
    if (!gate) {
      const own = page.byKey ? { token: async () => (await read("session")).ticket, auth: { console: true } } : {};
      gate = /** @type {import("../../src/gate.js").Gate} */ (connect(undefined, { namespace, ...own }));
      gate.on("connection:unauthorized", () => location.reload());
      gate.on("delivery:error", () => {}); // the view that subscribes says so
      this.#gates.set(namespace, gate);
    }
    return gate;
  }

  /** Call a watcher with the newest frame now, and with each later one. Return a function that ends this. @param {Watcher} watcher */
  watch(watcher) {
    this.#watchers.add(watcher);
    if (this.frame) watcher(this.frame);
    return () => this.#watchers.delete(watcher);
  }

  async #ask() {
    const gate = this.gate(page.namespaces[0]);
    if (this.#asking || document.hidden || !gate.isUp) return;
    this.#asking = true;
    try {
      const { frame } = await gate._request(VITALS, {});
      if (frame && frame.at !== this.frame?.at) {
        this.frame = frame;
        for (const watcher of this.#watchers) watcher(frame);
      }
    } catch (error) {
      // The next tick asks again. The state of the connection shows what is wrong with it.
      if (/** @type {any} */ (error).code === "forbidden") this.tell("down", "Refused: this identity may not see the console's numbers");
    } finally {
      this.#asking = false;
    }
  }

  /** @param {string} status */
  #say(status) {
    const words = WORDS[status] ?? status;
    if (words === WORDS.live) this.tell("up", words);
    else if (status !== "refused") this.tell(words === WORDS.connecting ? "connecting" : "down", words);
  }
}
