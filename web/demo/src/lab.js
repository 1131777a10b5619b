/**
 * The lab: it makes trouble on purpose, and proves that no event is lost in it.
 *
 * In: clicks (publish a burst, stall this tab, go offline), every event, and the gate's reports about connection and delivery.
 * Out: the pulse's chart and table; for the latest burst a tally of published events (receipts, by the server's record) against
 * shown ones (drawn here); and a diary, the history of this tab, which no burst can crowd out. The lab has no subscriptions of
 * its own: it counts the events that the board receives.
 *
 * @import { Line } from "./line.js"
 * @import { Shop } from "./shop.js"
 * @import { Timeline } from "./timeline.js"
 */
import { element } from "./element.js";
import { gapWords } from "./gap-words.js";
import { Pulse } from "./pulse.js";
import { seconds, Tally, stampOf } from "./tally.js";

const TICK_MS = 250;
/** The lab draws the chart and asks for the server's record this often. */
const PERIOD_MS = 1000;
/** A tick that is later than this had to wait: something blocked the main thread. */
const STALL_MS = 1200;
/** During a stall the server publishes this many events per second, within these limits, so that there is something to catch up. */
const STALL_EVENTS_PER_S = 40;
const MAX_BURST_EVENTS = 500;
const MAX_OVER_S = 10;
const MAX_TALLIES = 4;

export class Lab {
  pulse = new Pulse();
  /** @type {Map<string, { tally: Tally, missedBefore: number, requesting: boolean, forgotten: boolean }>} newest last */
  #bursts = new Map();
  #oldestMs = Infinity;
  #framed = false;
  #lastTickMs = performance.now();
  #drawnMs = 0;
  #asking = false;
  /** @type {number | null} the offset at which this tab has caught up */
  #target = null;
  #outcome = "";

  /**
   * @param {{ gate: any, shop: Shop, line: Line, diary: Timeline, isLive: () => boolean, complain: (title: string, detail: string) => void }} site
   * @param {{ chart: import("./chart.js").Chart, tools: HTMLElement, stall: HTMLElement, offline: HTMLElement, verdict: HTMLElement, status: HTMLElement,
   *   tally: Record<"published" | "shown" | "twice" | "slowest", HTMLElement>, table: HTMLElement, details: HTMLDetailsElement }} parts
   * @param {number} stallMs
   */
  constructor(site, parts, stallMs) {
    this.site = site;
    this.parts = parts;
    this.stallMs = stallMs;
    parts.tools.addEventListener("click", ({ target }) => {
      const events = Number(/** @type {HTMLElement} */ (target).dataset.burst);
      if (events) void this.#publish(events, 0);
    });
    parts.stall.addEventListener("click", () => void this.#stall());
    parts.offline.addEventListener("click", () => this.#toggleLine());
    parts.details.addEventListener("toggle", () => this.#draw());
    document.addEventListener("visibilitychange", () => {
      this.#lastTickMs = performance.now(); // the browser delays the timers of a hidden page
    });
    this.#listen(site.gate);
    setInterval(() => this.#tick(), TICK_MS);
    this.#draw();
  }

  /** Count a dispatched event. @param {{ data: any, time: number }} event */
  event({ data, time }) {
    this.pulse.received(performance.now());
    const stamp = stampOf(data);
    if (stamp) (this.#bursts.get(stamp.id) ?? this.#begin(stamp.id, stamp.of, stamp.number)).tally.take(stamp.number);
    if (Number.isFinite(time)) this.#oldestMs = Math.min(this.#oldestMs, time);
    if (this.#framed) return;
    this.#framed = true;
    requestAnimationFrame(() => this.#shown());
  }

  /** @param {any} gate */
  #listen(gate) {
    const { pulse } = this;
    gate.on("connection:down", () => {
      pulse.begin("offline", performance.now());
      this.#note(`offline: ${this.site.line.isCut ? "on purpose" : "connection lost"}`);
    });
    gate.on("connection:up", (/** @type {any} */ { resumed, offset }) => {
      const now = performance.now();
      pulse.end("backpressure", now);
      if (!pulse.lasts("offline")) return;
      pulse.end("offline", now);
      pulse.begin("catching up", now);
      this.#target = offset;
      this.#note(resumed ? "online again, resumed" : "online again, without a resume");
    });
    gate.on("delivery:backpressure", (/** @type {any} */ { state, queued, discarded, where }) => {
      if (state === "off") pulse.end("backpressure", performance.now());
      else pulse.begin("backpressure", performance.now());
      this.#note(`backpressure ${state} in the ${where}: ${queued} queued, ${discarded} set aside`);
    });
    gate.on("delivery:gap", (/** @type {any} */ gap) => {
      this.#note(`${gapWords(gap)}, ${gap.recoverable ? "recoverable" : "for good"}`);
    });
  }

  /** This frame draws every event that was dispatched before it. */
  #shown() {
    this.#framed = false;
    // Clocks of different machines disagree, and no event is shown before it is published.
    const lagMs = this.#oldestMs === Infinity ? 0 : Math.max(0, Date.now() - this.#oldestMs);
    this.#oldestMs = Infinity;
    this.pulse.shown(performance.now(), lagMs);
    for (const { tally } of this.#bursts.values()) if (tally.unshown) tally.show(lagMs);
    this.#judge();
  }

  #tick() {
    const now = performance.now();
    if (now - this.#lastTickMs > STALL_MS && !document.hidden) {
      this.pulse.lasted("stalled", this.#lastTickMs, now);
      this.#note(`this tab stalled for ${seconds(now - this.#lastTickMs)}`);
    }
    this.#lastTickMs = now;
    if (this.#target !== null) this.#catchUp();
    if (now - this.#drawnMs < PERIOD_MS) return;
    void this.#ask();
    this.#draw();
  }

  #catchUp() {
    const { offset, waiting, connection } = this.site.gate.state;
    if (connection !== "up" || waiting || (offset ?? 0) < /** @type {number} */ (this.#target)) return;
    this.#target = null;
    this.pulse.end("catching up", performance.now());
    this.#note("caught up");
  }

  /** @param {number} events @param {number} over_s @returns {Promise<void>} resolved when the server has answered */
  async #publish(events, over_s) {
    const id = `${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}`;
    const burst = this.#begin(id, events, 1);
    burst.requesting = true;
    this.#judge();
    try {
      await this.site.shop.burst({ id, events, over_s });
    } catch (error) {
      this.site.complain("The burst was cut short", /** @type {Error} */ (error).message);
    }
    burst.requesting = false;
    await this.#ask();
  }

  /** Block this page's main thread for the whole stall, while the server publishes events. */
  async #stall() {
    if (this.parts.stall.ariaDisabled === "true") return;
    const label = this.parts.stall.textContent;
    this.parts.stall.ariaDisabled = "true";
    this.parts.stall.textContent = "Stalled…";
    const over_s = Math.min(MAX_OVER_S, this.stallMs / 1000);
    await this.#publish(Math.min(MAX_BURST_EVENTS, Math.ceil(over_s * STALL_EVENTS_PER_S)), over_s);
    // Two frames: the first draws the label, the second shows it.
    requestAnimationFrame(() => requestAnimationFrame(() => {
      const end = performance.now() + this.stallMs;
      while (performance.now() < end);
      this.parts.stall.ariaDisabled = "false";
      this.parts.stall.textContent = label;
    }));
  }

  #toggleLine() {
    const { line, gate } = this.site;
    if (line.isCut) {
      line.restore();
      gate.open();
    } else line.cut();
    this.parts.offline.textContent = line.isCut ? "Go online" : "Go offline";
    this.#judge();
  }

  /** @param {string} id @param {number} of @param {number} first */
  #begin(id, of, first) {
    const burst = { tally: new Tally(id, of, first), missedBefore: this.site.gate.state.missed, requesting: false, forgotten: false };
    this.#bursts.set(id, burst);
    if (this.#bursts.size > MAX_TALLIES) this.#bursts.delete(/** @type {string} */ (this.#bursts.keys().next().value));
    return burst;
  }

  /** Ask the server how many receipts the latest burst has, until the burst is over. */
  async #ask() {
    const burst = [...this.#bursts.values()].at(-1);
    if (!burst || burst.forgotten || burst.tally.report?.done || this.#asking) return;
    this.#asking = true;
    // The question may arrive before the request that starts the burst.
    const { requesting } = burst;
    try {
      burst.tally.report = await this.site.shop.burstRecord(burst.tally.id);
    } catch (error) {
      // A 404: the server refused the burst, or has forgotten it. After any other error the lab asks again.
      burst.forgotten = !requesting && /** @type {any} */ (error).status === 404;
    }
    this.#asking = false;
    this.#judge();
  }

  /** Show the state of the latest burst: the figures always, the spoken status only when the outcome changes. */
  #judge() {
    const burst = [...this.#bursts.values()].at(-1);
    if (!burst) return;
    const { tally, missedBefore, forgotten } = burst;
    const { connection, missed } = this.site.gate.state;
    let { outcome, text } = tally.verdict({ online: connection === "up", lost: missed - missedBefore });
    if (forgotten) [outcome, text] = ["short", "The server did not run this burst."];
    else if (outcome === "waiting" && !this.site.isLive()) text = "This board is not live, so it is not subscribed to the burst.";
    const { verdict, status, tally: figures } = this.parts;
    verdict.dataset.outcome = outcome;
    write(verdict, text);
    write(figures.published, tally.report ? String(tally.published) : "–");
    write(figures.shown, String(tally.shown));
    write(figures.twice, String(tally.twice));
    write(figures.slowest, tally.slowestMs === null ? "–" : seconds(tally.slowestMs));
    if (this.#outcome !== `${tally.id} ${outcome}`) write(status, text);
    this.#outcome = `${tally.id} ${outcome}`;
  }

  #draw() {
    this.#drawnMs = performance.now();
    const entries = this.pulse.seconds(this.#drawnMs);
    this.parts.chart.draw(entries);
    if (!this.parts.details.open) return;
    const rows = entries.reverse().filter(({ received, conditions, notes }) => received || conditions.length || notes.length);
    this.parts.table.replaceChildren(...rows.map(rowOf));
  }

  /** @param {string} text */
  #note(text) {
    this.pulse.note(performance.now(), text);
    this.site.diary.note(text);
  }
}

/** @param {import("./pulse.js").Second} second */
function rowOf({ ago, received, slowestMs, conditions, notes }) {
  const cells = [String(received), slowestMs === null ? "–" : seconds(slowestMs), [...conditions, ...notes].join("; ")];
  const head = element("th", { scope: "row", text: ago ? `${ago} s ago` : "now" });
  return element("tr", {}, head, ...cells.map((text) => element("td", { text })));
}

/** @param {HTMLElement} target @param {string} text */
function write(target, text) {
  if (target.textContent !== text) target.textContent = text;
}
