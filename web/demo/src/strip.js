/**
 * The strip: the last minute in five lanes, over both boards.
 *
 * In: what was sent, and a story per person. Out: one path per person and lane, a count per lane, and a number where each trouble began. A lane's
 * upper half is the first person's, its lower half the second's. The strip holds no words, so that none can overlap.
 *
 * @import { Bar, Sent, Span, Story } from "./story.js"
 */
import { element } from "../../design/element.js";
import { barAt, WINDOW_MS } from "./story.js";

/** The same as in the lanes' viewBox. */
const [WIDTH, HEIGHT] = [600, 32];
const DRAW_MS = 100;
/** Narrower spans are drawn this wide, and nearer marks are left out. */
const LEAST_WIDTH = 4;
const LEAST_APART_MS = 2400;
/** The events of a bar that fill a lane. */
const MOST = 300;

export class Strip {
  /** @type {{ number: number, atMs: number }[]} */
  #marks = [];
  #drawnMs = 0;

  /** @param {HTMLElement} root @param {HTMLElement} marks @param {Sent} sent @param {{ name: string, story: Story }[]} people */
  constructor(root, marks, sent, people) {
    this.lanes = Object.fromEntries([...root.querySelectorAll(".lane")].map((each) => [/** @type {HTMLElement} */ (each).dataset.lane, each]));
    this.marks = marks;
    this.sent = sent;
    this.people = people;
    const draw = () => {
      const nowMs = performance.now();
      if (nowMs - this.#drawnMs >= DRAW_MS) this.draw(nowMs);
      requestAnimationFrame(draw);
    };
    draw();
  }

  /** Mark where a trouble begins. @param {number} number */
  mark(number) {
    this.#marks.push({ number, atMs: barAt(performance.now()) });
  }

  /** @param {number} nowMs */
  draw(nowMs) {
    this.#drawnMs = nowMs;
    const stories = this.people.map(({ story }) => story);
    const bars = (/** @type {Bar[]} */ list) => (/** @type {number} */ top, /** @type {number} */ room) => barsOf(list, nowMs, top, room);
    this.#lane("sent", [bars(this.sent.list)], [this.sent.total]);
    this.#lane("shown", stories.map(({ shown }) => bars(shown.list)), stories.map(({ shown }) => shown.total));
    this.#lane("gap", stories.map(({ gaps }) => (top, room) => spansOf(gaps, nowMs, top, room)), stories.map(({ gapCount }) => gapCount));
    this.#lane("repair", stories.map(({ repaired }) => bars(repaired.list)), stories.map(({ repaired }) => repaired.total));
    this.#lane("rolled", stories.map(({ rolledBack }) => bars(rolledBack.list)), stories.map(({ rolledBack }) => rolledBack.total));
    this.#marks = this.#marks.filter(({ atMs }, nth) => atMs > nowMs - WINDOW_MS && (!nth || atMs - this.#marks[nth - 1].atMs > LEAST_APART_MS));
    while (this.marks.childElementCount > this.#marks.length) this.marks.firstElementChild?.remove();
    while (this.marks.childElementCount < this.#marks.length) this.marks.append(element("li"));
    for (const [nth, { number, atMs }] of this.#marks.entries()) {
      const mark = /** @type {HTMLElement} */ (this.marks.children[nth]);
      mark.style.left = `${(100 * xOf(atMs, nowMs)) / WIDTH}%`;
      if (mark.textContent !== String(number)) mark.textContent = String(number);
    }
  }

  /** @param {string} name @param {((top: number, room: number) => string)[]} paths of each person @param {number[]} counts of each person */
  #lane(name, paths, counts) {
    const lane = this.lanes[name];
    const height = HEIGHT / paths.length;
    for (const [nth, path] of paths.entries()) lane.querySelectorAll("path")[nth].setAttribute("d", path(nth * height, height - (paths.length > 1 ? 1 : 0)));
    const isSame = new Set(counts).size === 1;
    const text = isSame ? `${counts[0]}${counts.length > 1 && counts[0] ? " each" : ""}` : this.people.map((each, at) => `${each.name} ${counts[at]}`).join(" · ");
    const count = /** @type {HTMLElement} */ (lane.querySelector("p"));
    if (count.textContent !== text) count.textContent = text;
  }
}

/** @param {number} atMs @param {number} nowMs */
function xOf(atMs, nowMs) {
  return WIDTH * (1 - (nowMs - atMs) / WINDOW_MS);
}

/** Bars grow with the logarithm of their events, so that one is visible and five hundred fit. @param {Bar[]} bars @param {number} nowMs @param {number} top @param {number} room */
export function barsOf(bars, nowMs, top, room) {
  return bars.filter(({ atMs }) => atMs > nowMs - WINDOW_MS).map(({ atMs, count }) => {
    const height = room * Math.min(1, 0.25 + (0.75 * Math.log(count)) / Math.log(MOST));
    return rectangle(xOf(atMs, nowMs), top + room - height, LEAST_WIDTH, height);
  }).join("");
}

/** @param {Span[]} spans @param {number} nowMs @param {number} top @param {number} room */
export function spansOf(spans, nowMs, top, room) {
  return spans.filter(({ toMs }) => (toMs ?? nowMs) > nowMs - WINDOW_MS).map(({ fromMs, toMs }) => {
    const left = Math.max(0, xOf(fromMs, nowMs));
    return rectangle(left, top, Math.max(LEAST_WIDTH, xOf(toMs ?? nowMs, nowMs) - left), room);
  }).join("");
}

/** @param {number} x @param {number} y @param {number} width @param {number} height */
function rectangle(x, y, width, height) {
  const [left, top, wide, high] = [x, y, width, height].map((each) => Number(each.toFixed(1)));
  return `M${left} ${top}h${wide}v${high}h${-wide}z`;
}
