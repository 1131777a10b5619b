/**
 * Troubles on purpose: a card for each, with its description before and its verdict after, from real counts. One button runs all of them.
 *
 * In: clicks. Out: bursts, cuts, stalls, restarts and losses, each awaited until every person has caught up, and a verdict: receipts of the server
 * against what was shown here. One trouble at a time. The first person is the one in trouble.
 *
 * @import { Person } from "./person.js"
 * @import { BurstCount } from "./story.js"
 * @typedef {{ id: string, title: string, says: string, run: (burst: string) => Promise<string> }} Trouble `run` resolves with the verdict
 */
import { element } from "../../design/element.js";

const [FLOOD_EVENTS, CUT_EVENTS, STALL_EVENTS_PER_S] = [500, 50, 40];
/** So that the log has something to lose. */
const [LOSE_EVENTS, LOSE_S] = [60, 2];
const ASK_MS = 100;
const DEADLINE_MS = 40_000;
const PAUSE_MS = 2500;

export class Troubles {
  #busy = false;
  /** @type {Map<Trouble, { card: HTMLElement, nth: HTMLElement, says: HTMLElement }>} */
  #cards = new Map();

  /**
   * @param {HTMLElement} root @param {Person[]} people @param {{ stallMs: number, hasOperator: boolean, button: HTMLElement }} options
   * @param {{ mark: (number: number) => void, say: (text: string) => void }} shown
   */
  constructor(root, people, { stallMs, hasOperator, button }, shown) {
    this.people = people;
    this.first = people[0];
    this.stallMs = stallMs;
    this.button = button;
    this.shown = shown;
    const seconds = stallMs / 1000;
    /** @type {Trouble[]} */
    const all = [
      { id: "flood", title: `Publish ${FLOOD_EVENTS} events`, says: "At once, into the log. Each board has to show each event once.", run: (burst) => this.#flood(burst) },
      { id: "cut", title: `Cut ${this.first.name}’s network`, says: `For ${seconds} s, while ${CUT_EVENTS} events are published.`, run: (burst) => this.#cut(burst) },
      { id: "stall", title: "Stall this tab", says: `Blocks its main thread for ${seconds} s, while ${STALL_EVENTS_PER_S} events come each second.`, run: (burst) => this.#stall(burst) },
    ];
    if (hasOperator) {
      all.push(
        { id: "restart", title: "Restart the gateway", says: "Publishes 25 events while no browser is connected.", run: (burst) => this.#restart(burst) },
        { id: "lose", title: "Crash Redis", says: "Redis comes back without the last second of its log.", run: (burst) => this.#lose(burst) },
      );
    }
    for (const trouble of all) {
      const says = element("span", { className: "says", text: trouble.says });
      const nth = element("span", { className: "nth", aria: { hidden: "true" } });
      const card = element("button", { type: "button", className: "trouble", data: { trouble: trouble.id } }, nth, element("strong", { text: trouble.title }), says);
      card.addEventListener("click", () => void this.#alone([trouble]));
      this.#cards.set(trouble, { card, nth, says });
      root.append(card);
    }
    this.#number();
  }

  /** Run all, one after another. @returns {Promise<void>} */
  guide() {
    return this.#alone([...this.#cards.keys()]);
  }

  /** @param {Trouble[]} troubles */
  async #alone(troubles) {
    if (this.#busy) return;
    this.#set(true);
    if (troubles.length > 1) this.#number();
    for (const [at, trouble] of troubles.entries()) {
      if (at) await later(PAUSE_MS);
      await this.#run(trouble);
    }
    const short = troubles.filter((trouble) => this.#cards.get(trouble)?.card.dataset.outcome === "short").length;
    if (troubles.length > 1) this.shown.say(short ? `${short} of ${troubles.length} fell short.` : `All ${troubles.length} done. Each event was shown once, or its loss was reported.`);
    this.#set(false);
  }

  /** Show the description of each trouble. */
  #number() {
    for (const [at, [{ says: before }, { card, nth, says }]] of [...this.#cards].entries()) {
      card.dataset.outcome = "";
      nth.textContent = String(at + 1);
      says.textContent = before;
    }
  }

  /** @param {boolean} busy */
  #set(busy) {
    this.#busy = busy;
    for (const each of [this.button, ...[...this.#cards.values()].map(({ card }) => card)]) each.ariaDisabled = String(busy);
  }

  /** @param {Trouble} trouble */
  async #run(trouble) {
    const { card, nth, says } = /** @type {{ card: HTMLElement, nth: HTMLElement, says: HTMLElement }} */ (this.#cards.get(trouble));
    const number = [...this.#cards.keys()].indexOf(trouble) + 1;
    card.dataset.outcome = "running";
    card.parentElement?.scrollTo({ left: card.offsetLeft - card.parentElement.offsetLeft }); // on a phone the cards are a row that scrolls
    nth.textContent = String(number);
    says.textContent = trouble.says;
    this.shown.say(`${trouble.title}…`);
    this.shown.mark(number);
    try {
      says.textContent = await trouble.run(`${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}`);
      card.dataset.outcome = "whole";
      nth.textContent = "✓";
    } catch (error) {
      says.textContent = /** @type {Error} */ (error).message;
      card.dataset.outcome = "short";
      nth.textContent = "!";
    }
    this.shown.say(says.textContent);
  }

  /** @param {string} id */
  async #flood(id) {
    const began = performance.now();
    const published = await this.#burst(id, FLOOD_EVENTS);
    const counts = await this.#whole(id, published);
    return `${published} published, ${this.#each("shown", counts.map(({ seen }) => seen.size))}, none twice, in ${ms(Math.max(...counts.map(({ lastMs }) => lastMs)) - began)}.`;
  }

  /** @param {string} id */
  async #cut(id) {
    const { line, gate, name, story } = this.first;
    const until = performance.now() + this.stallMs;
    line.cut();
    const published = await this.#burst(id, CUT_EVENTS)
      .then((count) => later(until - performance.now()).then(() => count))
      .finally(() => {
        line.restore();
        gate.open();
      });
    const [{ repaired }] = await this.#whole(id, published);
    return `${name} missed ${published}, repaired ${repaired} in ${ms(story.repairMs ?? 0)}, none twice.`;
  }

  /** @param {string} id */
  async #stall(id) {
    const seconds = this.stallMs / 1000;
    const burst = this.#burst(id, Math.ceil(seconds * STALL_EVENTS_PER_S), seconds);
    burst.catch(() => {}); // it is awaited after the stall
    await later(ASK_MS); // so that its request is sent, and this card drawn
    const end = performance.now() + this.stallMs;
    while (performance.now() < end);
    const before = this.first.story.burst(id).seen.size;
    const published = await burst;
    const [{ seen, lastMs }] = await this.#whole(id, published);
    return `${seen.size - before} of ${published} waited, all shown ${ms(Math.max(0, lastMs - end))} after the stall, none twice.`;
  }

  /** @param {string} id */
  async #restart(id) {
    const back = Promise.all(this.people.map(({ gate }) => new Promise((up) => gate.once("connection:up", up))));
    const { published } = await this.first.shop.send("POST", "/demo/restart", { id });
    await Promise.race([back, later(DEADLINE_MS)]);
    const counts = await this.#whole(id, published);
    const slowest = Math.max(...this.people.map(({ story }) => story.repairMs ?? 0));
    return `${published} published with no browser connected, ${this.#each("repaired", counts.map(({ repaired }) => repaired))} in ${ms(slowest)}, none twice.`;
  }

  /** @param {string} id */
  async #lose(id) {
    const lost = () => this.people.map(({ story }, nth) => story.rolledBack.total - before[nth]);
    const before = this.people.map(({ story }) => story.rolledBack.total);
    await this.#burst(id, LOSE_EVENTS, LOSE_S);
    const { lost: count } = await this.first.shop.send("POST", "/demo/lose");
    await this.#until(() => lost().every((each) => each >= count), () => `Redis lost ${count} events, and a page was not notified of all of them.`);
    return `Redis lost ${count} events. ${this.#each("rolled back", lost())}, none in silence.`;
  }

  /** @param {string} id @param {number} events @param {number} [over_s] @returns {Promise<number>} how many were published */
  async #burst(id, events, over_s = 0) {
    return (await this.first.shop.send("POST", "/demo/burst", { id, events, over_s })).published;
  }

  /**
   * Wait until every person is connected, has caught up, and has seen each published event once.
   * @param {string} id @param {number} published @returns {Promise<BurstCount[]>} of each person
   */
  async #whole(id, published) {
    const counts = this.people.map(({ story }) => story.burst(id));
    await this.#until(
      () => this.people.every(({ story }) => story.isWhole) && counts.every(({ seen }) => seen.size >= published),
      () => `Short: ${published} published, ${this.#each("shown", counts.map(({ seen }) => seen.size))}.`,
    );
    const twice = counts.reduce((sum, each) => sum + each.twice, 0);
    if (twice) throw new Error(`${published} published, and ${twice} shown twice.`);
    return counts;
  }

  /** @param {() => boolean} isSo @param {() => string} otherwise */
  async #until(isSo, otherwise) {
    const end = performance.now() + DEADLINE_MS;
    while (!isSo()) {
      if (performance.now() > end) throw new Error(otherwise());
      await later(ASK_MS);
    }
  }

  /** The counts of all persons, as one number if they agree. @param {string} verb @param {number[]} counts */
  #each(verb, counts) {
    if (counts.length === 1) return `${counts[0]} ${verb}`;
    if (new Set(counts).size === 1) return `${counts[0]} ${verb} by each`;
    return this.people.map(({ name }, nth) => `${counts[nth]} ${verb} by ${name}`).join(", ");
  }
}

const later = (/** @type {number} */ delayMs) => new Promise((resolve) => setTimeout(resolve, Math.max(0, delayMs)));
const ms = (/** @type {number} */ value) => (value < 1000 ? `${Math.max(1, Math.round(value))} ms` : `${(value / 1000).toFixed(1)} s`);
