/**
 * The strip: the last minute in five lanes, over both boards.
 *
 * In: what was sent, and a story per person. Out: one path per person and lane, a count per lane, and a number where each trouble began. A lane's
 * upper half is the first person's, its lower half the second's. The strip holds no words, so that none can overlap.
 *
 * @import { Bar, Sent, Span, Story } from "./story.js"
 */
import { element } from "../../design/element.js";
import { WINDOW_MS } from "./story.js";

/** As the lanes' viewBox says. */
const [WIDTH, HEIGHT] = [600, 32];
const DRAW_MS = 100;
/** Narrower spans are drawn this wide, and nearer marks are left out. */
const LEAST_WIDTH = 5;
const LEAST_APART_MS = 2600;
/** So many events of a bar fill a lane. */
const MOST = 300;

export class Strip {
  /** @type {{ number: number, atMs: number }[]} */
  #marks = [];
  #drawnMs = 0;

  /** @param {HTMLElement} root @param {HTMLElement} marks @param {Sent} sent @param {{ user: string, name: string, story: Story }[]} people */
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
    this.#marks.push({ number, atMs: performance.now() });
  }

  /** @param {number} nowMs */
  draw(nowMs) {
    this.#drawnMs = nowMs;
    this.#lane("sent", 0, 1, barsOf(this.sent.list, nowMs, 0, HEIGHT), [this.sent.total]);
    const all = this.people.map(({ story }) => story);
    const height = HEIGHT / all.length;
    for (const [nth, story] of all.entries()) {
      const top = nth * height;
      const room = height - (all.length > 1 ? 1 : 0);
      this.#lane("shown", nth, all.length, barsOf(story.shown.list, nowMs, top, room), all.map(({ shown }) => shown.total));
      this.#lane("gap", nth, all.length, spansOf(story.gaps, nowMs, top, room), all.map(({ gapCount }) => gapCount));
      const repairs = spansOf(story.repairs, nowMs, top + room / 3, room / 3) + barsOf(story.repaired.list, nowMs, top, room);
      this.#lane("repair", nth, all.length, repairs, all.map(({ repaired }) => repaired.total));
      this.#lane("rolled", nth, all.length, barsOf(story.rolledBack.list, nowMs, top, room), all.map(({ rolledBack }) => rolledBack.total));
    }
    this.#marks = this.#marks.filter(({ atMs }, nth) => atMs > nowMs - WINDOW_MS && (!nth || atMs - this.#marks[nth - 1].atMs > LEAST_APART_MS));
    while (this.marks.childElementCount > this.#marks.length) this.marks.firstElementChild?.remove();
    while (this.marks.childElementCount < this.#marks.length) this.marks.append(element("li"));
    for (const [nth, { number, atMs }] of this.#marks.entries()) {
      const mark = /** @type {HTMLElement} */ (this.marks.children[nth]);
      mark.style.left = `${(100 * xOf(atMs, nowMs)) / WIDTH}%`;
      if (mark.textContent !== String(number)) mark.textContent = String(number);
    }
  }

  /** @param {string} name @param {number} nth @param {number} of @param {string} path @param {number[]} counts */
  #lane(name, nth, of, path, counts) {
    const lane = this.lanes[name];
    lane.querySelectorAll("path")[nth].setAttribute("d", path);
    if (nth < of - 1) return;
    const text = counts.length > 1 ? this.people.map((each, at) => `${each.name} ${counts[at]}`).join(" · ") : String(counts[0]);
    const count = /** @type {HTMLElement} */ (lane.querySelector("p"));
    if (count.textContent !== text) count.textContent = text;
  }
}

/** @param {number} atMs @param {number} nowMs */
function xOf(atMs, nowMs) {
  return WIDTH * (1 - (nowMs - atMs) / WINDOW_MS);
}

/** Bars grow with the logarithm of their events: one is seen, and five hundred have room. @param {Bar[]} bars @param {number} nowMs @param {number} top @param {number} room */
export function barsOf(bars, nowMs, top, room) {
  return bars.filter(({ atMs }) => atMs > nowMs - WINDOW_MS).map(({ atMs, count }) => {
    const height = room * Math.min(1, 0.25 + (0.75 * Math.log(count)) / Math.log(MOST));
    return rectangle(xOf(atMs, nowMs), top + room - height, 4, height);
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
