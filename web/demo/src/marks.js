/**
 * Places for the chart's words, so that none covers another. Pure.
 *
 * In: words and where on the time axis they belong. Out: those that have room, each in the first row that is free there. The newest of
 * each choose first, then the older ones: in a minute with more happenings than room some are left out, and the table still has them.
 */

const ROW_PX = 19;
/** The words leave the lower part of the chart to the bars. */
const PART = 0.6;
/** A little more than a letter of the type scale's smallest size takes; a word that came out wider would touch the next. */
const LETTER_PX = 7.3;
const PADDING_PX = 10;
const MARGIN_PX = 3;
/** The name of the upper scale has this much of the first row. */
const SCALE_PX = 96;

/**
 * @param {{ text: string, x: number }[]} words @param {number} width @param {number} height of the chart
 * @returns {{ text: string, left: number, top: number }[]}
 */
export function placed(words, width, height) {
  /** @type {[number, number][][]} what is taken in each row */
  const rows = Array.from({ length: Math.floor((height * PART) / ROW_PX) }, (_, row) => (row ? [] : [[0, SCALE_PX]]));
  const found = [];
  const newestFirst = [...words].sort((one, other) => other.x - one.x);
  const isNewest = newestFirst.map(({ text }, index) => newestFirst.findIndex((each) => each.text === text) === index);
  for (const { text, x } of [true, false].flatMap((is) => newestFirst.filter((_, index) => isNewest[index] === is))) {
    const wide = text.length * LETTER_PX + PADDING_PX;
    const left = Math.max(0, Math.min(x, width - wide));
    const row = rows.findIndex((taken) => taken.every(([from, to]) => left >= to || left + wide <= from));
    if (row < 0) continue;
    rows[row].push([left, left + wide]);
    found.push({ text, left, top: MARGIN_PX + row * ROW_PX });
  }
  return found;
}
