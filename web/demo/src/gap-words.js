/**
 * A gap in words, for the timeline and the diary.
 *
 * In: the notice of a gap. Out: one line. Events that were rolled back have been seen and are no more; all others were not seen.
 */

/**
 * @param {{ from: number | null, to: number | null, count: number | null, reason: string }} gap
 * @returns {string}
 */
export function gapWords({ from, to, count, reason }) {
  const range = `(${from ?? "?"} to ${to ?? "?"})`;
  return reason === "rolled_back"
    ? `${count ?? "?"} taken back ${range}: Redis has lost them`
    : `${count ?? "?"} missed ${range}: ${reason}`;
}

/** A gap in two words, for the chart. @param {{ count: number | null, reason: string }} gap @returns {string} */
export function gapMark({ count, reason }) {
  return `${count ?? "?"} ${reason === "rolled_back" ? "taken back" : "missed"}`;
}
