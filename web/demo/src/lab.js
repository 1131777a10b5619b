/**
 * The lab: it makes trouble on purpose, and proves that no event is lost in it.
 *
 * In: clicks (publish a burst, stall this tab, go offline, restart the gateway, lose the end of the log), every event, and the gate's reports about connection and delivery.
 * Out: the pulse's chart and table; for the latest burst a tally of published events (receipts, by the server's record) against
 * shown ones (drawn here); and a diary, the history of this tab, which no burst can crowd out. The lab has no subscriptions of
 * its own: it counts the events that the board receives.
 *
 * @import { Line } from "./line.js"
 * @import { Shop } from "./shop.js"
 * @import { Timeline } from "./timeline.js"
 */
import { element } from "../../design/element.js";
import { gapMark, gapWords } from "./gap-words.js";
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
/** Published before the log loses its last second, so that there is something in that second to lose. */
const LOSE = { events: 60, over_s: 2 };
/** The lab asks this often whether they are published: the second does not wait. */
const ASK_MS = 100;

export class Lab {
  pulse = new Pulse();
  /** @type {Map<string, { tally: Tally, missedBefore: number, takenBack: number, requesting: boolean, forgotten: boolean }>} newest last */
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
   * @param {{ chart: import("./chart.js").Chart, tools: HTMLElement, stall: HTMLElement, offline: HTMLElement,
   *   restart: HTMLElement | null, lose: HTMLElement | null, verdict: HTMLElement, status: HTMLElement,
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
    parts.restart?.addEventListener("click", () => void this.#restart());
    parts.lose?.addEventListener("click", () => void this.#lose());
    parts.offline.addEventListener("click", () => this.#toggleLine());
    parts.details.addEventListener("toggle", () => this.#draw());
    document.addEventListener("visibilitychange", () => {
      this.#lastTickMs = performance.now(); // the browser delays the timers of a hidden page
    });
    this.#listen(site.gate);
    setInterval(() => this.#tick(), TICK_MS);
    this.#draw();
  }

  /** Count a dispatched event. @param {{ data: any, time: number, offset?: number }} event */
  event({ data, time, offset }) {
    this.pulse.received(performance.now(), offset);
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
    gate.on("connection:moving", () => this.#note("the gateway restarts", "restart"));
    gate.on("state:change", (/** @type {any} */ { connection, bus }) => {
      if (connection === "up" && bus === "down") pulse.begin("no Redis", performance.now());
      else pulse.end("no Redis", performance.now());
    });
    gate.on("delivery:gap", (/** @type {any} */ gap) => {
      if (gap.reason === "rolled_back") this.#takeBack(gap);
      this.#note(`${gapWords(gap)}, ${gap.recoverable ? "recoverable" : "for good"}`, gapMark(gap));
    });
  }

  /** @param {{ from: number | null, count: number | null }} gap */
  #takeBack({ from, count }) {
    if (from !== null) this.pulse.takeBack(from);
    for (const burst of this.#bursts.values()) burst.takenBack += count ?? 0;
    void this.#ask(true);
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
    this.#note("caught up", "caught up");
  }

  /** @param {number} events @param {number} over_s @returns {Promise<void>} resolved when the server has answered */
  async #publish(events, over_s) {
    const id = newId();
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
    await during(this.parts.stall, "Stalled…", async () => {
      const over_s = Math.min(MAX_OVER_S, this.stallMs / 1000);
      await this.#publish(Math.min(MAX_BURST_EVENTS, Math.ceil(over_s * STALL_EVENTS_PER_S)), over_s);
      // Two frames: the first draws the label, the second shows it.
      await new Promise((shown) => void requestAnimationFrame(() => requestAnimationFrame(shown)));
      const end = performance.now() + this.stallMs;
      while (performance.now() < end);
    });
  }

  /** Restart the gateway, which publishes events while no page is connected. Over when this page is connected again. */
  async #restart() {
    await during(/** @type {HTMLElement} */ (this.parts.restart), "Restarting…", async () => {
      const id = newId();
      try {
        const back = new Promise((up) => this.site.gate.once("connection:up", up));
        const { events } = await this.site.shop.restart(id);
        const burst = this.#begin(id, events, 1);
        burst.requesting = true;
        this.#judge();
        await back;
        burst.requesting = false;
        await this.#ask();
      } catch (error) {
        this.site.complain("The gateway was not restarted", /** @type {Error} */ (error).message);
      }
    });
  }

  /** Publish for two seconds, and have the log lose the last one. */
  async #lose() {
    await during(/** @type {HTMLElement} */ (this.parts.lose), "Losing…", async () => {
      await this.#publish(LOSE.events, LOSE.over_s);
      const burst = [...this.#bursts.values()].at(-1);
      while (burst && !burst.forgotten && !burst.tally.report?.done) {
        await new Promise((later) => setTimeout(later, ASK_MS));
        await this.#ask();
      }
      try {
        const { first, last, count } = await this.site.shop.lose();
        this.#note(count ? `Redis went back a second: ${count} events lost (${first} to ${last})` : "Redis went back a second, in which nothing happened");
      } catch (error) {
        this.site.complain("The log has lost nothing", /** @type {Error} */ (error).message);
      }
      await this.#ask(true);
    });
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
    const burst = { tally: new Tally(id, of, first), missedBefore: this.site.gate.state.missed, takenBack: 0, requesting: false, forgotten: false };
    this.#bursts.set(id, burst);
    if (this.#bursts.size > MAX_TALLIES) this.#bursts.delete(/** @type {string} */ (this.#bursts.keys().next().value));
    return burst;
  }

  /** Ask the server how many receipts the latest burst has, until the burst is over; or, `again`, what the log has lost of it. */
  async #ask(again = false) {
    const burst = [...this.#bursts.values()].at(-1);
    if (!burst || burst.forgotten || (burst.tally.report?.done && !again) || this.#asking) return;
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
    const { tally, missedBefore, takenBack, forgotten } = burst;
    const { connection, missed } = this.site.gate.state;
    let { outcome, text } = tally.verdict({ online: connection === "up", lost: missed - missedBefore, takenBack });
    if (forgotten) [outcome, text] = ["short", "The server did not run this burst."];
    else if (outcome === "waiting" && !this.site.isLive()) text = "This board is not live, so it is not subscribed to the burst.";
    const { verdict, status, tally: figures } = this.parts;
    verdict.dataset.outcome = outcome;
    write(verdict, text);
    write(figures.published, tally.report ? String(tally.published) : "–");
    write(figures.shown, String(tally.shown));
    write(figures.twice, String(tally.twice));
    write(figures.slowest, tally.slowestMs === null ? "–" : seconds(tally.slowestMs));
    if (this.#outcome !== `${tally.id} ${outcome}`) {
      write(status, text);
      if (outcome === "whole") this.pulse.note(performance.now(), text, "nothing lost");
    }
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

  /** @param {string} text @param {string} [mark] the same in a word or two, for the chart */
  #note(text, mark) {
    this.pulse.note(performance.now(), text, mark);
    this.site.diary.note(text);
  }
}

/** Do something while a button says so and takes no clicks. @param {HTMLElement} button @param {string} label @param {() => Promise<void>} work */
async function during(button, label, work) {
  if (button.ariaDisabled === "true") return;
  const before = button.textContent;
  button.ariaDisabled = "true";
  button.textContent = label;
  try {
    await work();
  } finally {
    button.ariaDisabled = "false";
    button.textContent = before;
  }
}

function newId() {
  return `${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}`;
}

/** @param {import("./pulse.js").Second} second */
function rowOf({ ago, received, takenBack, slowestMs, conditions, notes }) {
  const cells = [takenBack ? `${received}, ${takenBack} taken back` : String(received), slowestMs === null ? "–" : seconds(slowestMs), [...conditions, ...notes].join("; ")];
  const head = element("th", { scope: "row", text: ago ? `${ago} s ago` : "now" });
  return element("tr", {}, head, ...cells.map((text) => element("td", { text })));
}

/** @param {HTMLElement} target @param {string} text */
function write(target, text) {
  if (target.textContent !== text) target.textContent = text;
}
