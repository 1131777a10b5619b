/**
 * A tally: the fate of one burst in this tab. Pure.
 *
 * In: the stamp `{id, number, of}` of each dispatched event, the frames that drew them, the number of receipts in the server's
 * record. Out: counts, and a verdict in words. Each number counts once, so an event that comes twice cannot make up for a missing
 * one.
 *
 * @typedef {{ id: string, number: number, of: number }} Stamp
 * @typedef {{ published: number, done: boolean, error?: string, lost?: number }} Report `lost`: so many of its newest the log has lost since
 * @typedef {"publishing" | "waiting" | "whole" | "short"} Outcome
 */

/** The demo's server publishes no larger burst; a stamp with more is not the server's. */
const MAX_EVENTS = 500;

/** @param {any} data of an event @returns {Stamp | null} its stamp, if it has a plausible one */
export function stampOf(data) {
  const stamp = data !== null && typeof data === "object" && Object.hasOwn(data, "burst") ? data.burst : null;
  if (stamp === null || typeof stamp !== "object") return null;
  const { id, number, of } = stamp;
  const fits = typeof id === "string" && id.length <= 40 && Number.isInteger(number) && Number.isInteger(of);
  return fits && number >= 1 && number <= of && of <= MAX_EVENTS ? { id, number, of } : null;
}

export class Tally {
  /** @type {Report | null} */
  report = null;
  /** Events that the page has drawn. */
  shown = 0;
  /** Events that came again. */
  twice = 0;
  /** @type {number | null} longest time from publishing to drawing */
  slowestMs = null;
  #came = 0;
  #seen;

  /** @param {string} id @param {number} of @param {number} [first] number of the first event that this tab received */
  constructor(id, of, first = 1) {
    this.id = id;
    this.of = of;
    this.first = first;
    this.#seen = new Uint8Array(of + 1);
  }

  /** Count a dispatched event. @param {number} number */
  take(number) {
    if (this.#seen[number]) this.twice++;
    else this.#came++;
    this.#seen[number] = 1;
  }

  /** Note that the page has drawn all events counted so far. @param {number} lagMs delay of the oldest new one */
  show(lagMs) {
    this.shown = this.#came;
    this.slowestMs = Math.max(this.slowestMs ?? 0, lagMs);
  }

  /** Whether an event was counted that is not drawn yet. */
  get unshown() {
    return this.#came > this.shown;
  }

  /** Receipts for events since this tab's first. */
  get published() {
    return Math.max(0, (this.report?.published ?? 0) - this.first + 1);
  }

  get whole() {
    return Boolean(this.report?.done) && this.shown >= this.published;
  }

  /**
   * @param {{ online: boolean, lost: number, takenBack?: number }} line whether the tab is connected; since the burst began, events that
   *   are gone for good, and events that this tab was told to take back
   * @returns {{ outcome: Outcome, text: string }}
   */
  verdict({ online, lost, takenBack = 0 }) {
    const { published, shown, report } = this;
    const cut = report?.error ? ` The burst ended early: ${report.error}.` : "";
    if (!report?.done) return { outcome: "publishing", text: `Publishing ${this.of} events…` };
    if (report.lost || takenBack) return this.#rolledBack(report.lost ?? 0, takenBack, online);
    if (this.whole) {
      const twice = this.twice ? `${this.twice} of them twice` : "none twice";
      const slowest = this.slowestMs === null ? "" : `; the slowest ${seconds(this.slowestMs)} after it was published`;
      return { outcome: "whole", text: `Nothing lost: ${published} published, ${published} shown, ${twice}${slowest}.${cut}` };
    }
    const missing = `${published - shown} of ${published}`;
    if (!online) return { outcome: "waiting", text: `${missing} events wait in the log until this tab is online again.${cut}` };
    if (lost) return { outcome: "short", text: `${missing} events were not shown, and the gateway said so: a gap of ${lost}.${cut}` };
    return { outcome: "waiting", text: `Catching up: ${missing} events are still to come.${cut}` };
  }

  /**
   * The log has lost its end. This tab must have been told of each event that it has shown and that is no more.
   *
   * @param {number} lost so many of this burst
   * @param {number} told so many this tab was told of
   * @param {boolean} online
   * @returns {{ outcome: Outcome, text: string }}
   */
  #rolledBack(lost, told, online) {
    const { published, shown } = this;
    const kept = Math.max(0, published - lost);
    const ghosts = Math.max(0, shown - kept);
    if (told && told >= ghosts) {
      return {
        outcome: "whole",
        text: `Nothing lost in silence: Redis lost its newest ${told} events, and this page was told of each. It took them back, and shows what the server has now.`,
      };
    }
    if (ghosts) return { outcome: "waiting", text: `Redis has lost ${ghosts} events that are shown here, and this page is not told yet.` };
    if (shown < kept) return { outcome: "waiting", text: `${online ? "Catching up" : "Offline"}: ${kept - shown} of ${kept} events are still to come.` };
    return { outcome: "whole", text: `Nothing lost in silence: ${kept} of ${published} events are in the log and shown. Redis lost the others before they came here.` };
  }
}

/** @param {number} ms @returns {string} such as `80 ms`, `9.8 s` */
export function seconds(ms) {
  return ms < 995 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}
