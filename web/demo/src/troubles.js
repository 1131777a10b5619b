/**
 * Trouble on purpose: a card for each, with what it does before and what came of it after, by real counts; and all of them, one after another.
 *
 * In: clicks. Out: bursts, cuts, stalls, restarts and losses, each awaited until every person has caught up, and a verdict: receipts by the server's
 * record against what was shown here. One trouble at a time. The first person is the one in trouble.
 *
 * @import { Person } from "./person.js"
 * @typedef {{ published: number, lost: number, done: boolean, error: string }} Report
 * @typedef {{ id: string, title: string, says: string, run: () => Promise<string> }} Trouble `run` resolves with the verdict
 */
import { element } from "../../design/element.js";

const CUT_EVENTS = 50;
const STALL_EVENTS_PER_S = 40;
/** The server publishes no longer or larger burst. */
const [MAX_OVER_S, MAX_EVENTS] = [10, 500];
/** So that there is something in the second that the log loses. */
const LOSE = { events: 60, over_s: 2 };
const ASK_MS = 100;
const DEADLINE_MS = 40_000;
const PAUSE_MS = 1500;

export class Troubles {
  #busy = false;
  /** @type {Map<string, { card: HTMLElement, says: HTMLElement }>} */
  #cards = new Map();

  /**
   * @param {HTMLElement} root @param {Person[]} people @param {{ stallMs: number, hasOperator: boolean }} options
   * @param {{ mark: (number: number) => void, say: (text: string) => void }} shown
   */
  constructor(root, people, { stallMs, hasOperator }, shown) {
    this.people = people;
    this.first = people[0];
    this.stallMs = stallMs;
    this.shown = shown;
    const seconds = stallMs / 1000;
    /** @type {Trouble[]} */
    this.all = [
      { id: "flood", title: "Publish 500 events", says: "At once, into the log. Each board has to show each event once.", run: () => this.#flood() },
      { id: "cut", title: `Cut ${this.first.name}’s network`, says: `For ${seconds} s, while ${CUT_EVENTS} events are published.`, run: () => this.#cut() },
      { id: "stall", title: "Stall this tab", says: `Blocks its main thread for ${seconds} s, while ${STALL_EVENTS_PER_S} events come each second.`, run: () => this.#stall() },
    ];
    if (hasOperator) {
      this.all.push(
        { id: "restart", title: "Restart the gateway", says: "Publishes 25 events while no browser is connected.", run: () => this.#restart() },
        { id: "lose", title: "Crash Redis", says: "Redis comes back without the last second of its log.", run: () => this.#lose() },
      );
    }
    for (const [nth, trouble] of this.all.entries()) {
      const says = element("span", { className: "says", text: trouble.says });
      const title = element("span", { className: "trouble-title" }, element("span", { className: "nth", text: String(nth + 1), aria: { hidden: "true" } }), document.createTextNode(trouble.title));
      const card = element("button", { type: "button", className: "trouble", data: { trouble: trouble.id } }, title, says);
      card.addEventListener("click", () => void this.#alone(() => this.#run(trouble, nth + 1)));
      this.#cards.set(trouble.id, { card, says });
      root.append(card);
    }
  }

  /** Run all, one after another. @returns {Promise<void>} */
  guide() {
    return this.#alone(async () => {
      for (const [nth, trouble] of this.all.entries()) {
        await this.#run(trouble, nth + 1);
        await later(PAUSE_MS);
      }
    });
  }

  /** @param {() => Promise<void>} work */
  async #alone(work) {
    if (this.#busy) return;
    this.#set(true);
    try {
      await work();
    } finally {
      this.#set(false);
    }
  }

  /** @param {boolean} busy */
  #set(busy) {
    this.#busy = busy;
    for (const { card } of this.#cards.values()) card.ariaDisabled = String(busy);
  }

  /** @param {Trouble} trouble @param {number} number */
  async #run({ id, title, says: before, run }, number) {
    const { card, says } = /** @type {{ card: HTMLElement, says: HTMLElement }} */ (this.#cards.get(id));
    card.dataset.outcome = "running";
    says.textContent = before;
    this.shown.say(`${title}…`);
    this.shown.mark(number);
    try {
      says.textContent = await run();
      card.dataset.outcome = "whole";
    } catch (error) {
      says.textContent = /** @type {Error} */ (error).message;
      card.dataset.outcome = "short";
    }
    this.shown.say(says.textContent);
  }

  async #flood() {
    const id = newId();
    const began = performance.now();
    await this.first.shop.send("POST", "/demo/burst", { id, events: MAX_EVENTS, over_s: 0 });
    const { published } = await this.#settled(id);
    const last = Math.max(...this.people.map(({ story }) => story.burst(id).lastMs));
    return `${published} published, ${this.#each("shown", (story) => story.burst(id).seen.size)}, none twice, in ${ms(last - began)}.`;
  }

  async #cut() {
    const { line, gate, shop, story } = this.first;
    const id = newId();
    line.cut();
    const until = performance.now() + this.stallMs;
    try {
      await shop.send("POST", "/demo/burst", { id, events: CUT_EVENTS, over_s: 0 });
      await later(until - performance.now());
    } finally {
      line.restore();
      gate.open();
    }
    const { published } = await this.#settled(id);
    const { repaired } = story.burst(id);
    return `${this.first.name} missed ${published}, repaired ${repaired} in ${ms(story.repairMs ?? 0)}, none twice.`;
  }

  async #stall() {
    const { shop, story } = this.first;
    const id = newId();
    const over_s = Math.min(MAX_OVER_S, this.stallMs / 1000);
    await shop.send("POST", "/demo/burst", { id, events: Math.min(MAX_EVENTS, Math.ceil(over_s * STALL_EVENTS_PER_S)), over_s });
    // Two frames: the first draws the card, the second shows it.
    await new Promise((shown) => void requestAnimationFrame(() => requestAnimationFrame(shown)));
    const end = performance.now() + this.stallMs;
    while (performance.now() < end);
    const before = story.burst(id).seen.size;
    const { published } = await this.#settled(id);
    const { seen, lastMs } = story.burst(id);
    return `${seen.size - before} of ${published} waited, all shown ${ms(Math.max(0, lastMs - end))} after the stall, none twice.`;
  }

  async #restart() {
    const id = newId();
    const back = Promise.all(this.people.map(({ gate }) => new Promise((up) => gate.once("connection:up", up))));
    await this.first.shop.send("POST", "/demo/restart", { id });
    await Promise.race([back, later(DEADLINE_MS)]);
    const { published } = await this.#settled(id);
    const slowest = Math.max(...this.people.map(({ story }) => story.repairMs ?? 0));
    return `${published} published with nobody there, ${this.#each("repaired", (story) => story.burst(id).repaired)} in ${ms(slowest)}, none twice.`;
  }

  async #lose() {
    const id = newId();
    const before = this.people.map(({ story }) => story.rolledBack.total);
    await this.first.shop.send("POST", "/demo/burst", { id, ...LOSE });
    await this.#report(id, ({ done }) => done);
    const { count } = await this.first.shop.send("POST", "/demo/lose");
    await this.#until(() => this.people.every(({ story }, nth) => story.rolledBack.total - before[nth] >= count), () => `Redis lost ${count} events, and a page was not notified of all of them.`);
    return `Redis lost ${count} events. ${this.#each("rolled back", (story, nth) => story.rolledBack.total - before[nth])}, none in silence.`;
  }

  /**
   * Wait until every person is connected, has caught up, and has seen all that was published.
   * @param {string} id of the burst @returns {Promise<Report>}
   */
  async #settled(id) {
    const report = await this.#report(id, ({ done }) => done);
    const counts = () => this.people.map(({ story }) => story.burst(id));
    await this.#until(
      () => this.people.every(({ story }) => story.isWhole) && counts().every(({ seen }) => seen.size >= report.published),
      () => `Short: ${report.published} published, ${this.#each("shown", (story) => story.burst(id).seen.size)}.`,
    );
    const twice = counts().reduce((sum, each) => sum + each.twice, 0);
    if (twice) throw new Error(`${report.published} published, and ${twice} shown twice.`);
    if (report.error) throw new Error(`Cut short after ${report.published}: ${report.error}`);
    return report;
  }

  /** @param {string} id @param {(report: Report) => boolean} isSo @returns {Promise<Report>} */
  async #report(id, isSo) {
    /** @type {Report | undefined} */
    let report;
    const ask = async () => {
      // The gateway may be away; the next question finds it.
      report = await this.first.shop.get(`/demo/burst/${id}`).catch(() => undefined);
      return report !== undefined && isSo(report);
    };
    await this.#until(ask, () => "The server did not run this burst.");
    return /** @type {Report} */ (/** @type {unknown} */ (report));
  }

  /** @param {() => boolean | Promise<boolean>} isSo @param {() => string} otherwise */
  async #until(isSo, otherwise) {
    const end = performance.now() + DEADLINE_MS;
    while (!(await isSo())) {
      if (performance.now() > end) throw new Error(otherwise());
      await later(ASK_MS);
    }
  }

  /** A count of each person: one number where they agree. @param {string} verb @param {(story: Person["story"], nth: number) => number} count */
  #each(verb, count) {
    const counts = this.people.map(({ story }, nth) => count(story, nth));
    if (counts.length === 1) return `${counts[0]} ${verb}`;
    if (new Set(counts).size === 1) return `${counts[0]} ${verb} by each`;
    return this.people.map(({ name }, nth) => `${counts[nth]} ${verb} by ${name}`).join(", ");
  }
}

const later = (/** @type {number} */ delayMs) => new Promise((resolve) => setTimeout(resolve, Math.max(0, delayMs)));
const ms = (/** @type {number} */ value) => (value < 1000 ? `${Math.max(1, Math.round(value))} ms` : `${(value / 1000).toFixed(1)} s`);
const newId = () => `${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}`;
