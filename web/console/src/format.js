/** Short texts for numbers and times. Pure. */

const NONE = "–";
const STEPS = /** @type {[number, string][]} */ ([[1e9, "G"], [1e6, "M"], [1e3, "k"]]);
const BYTES = /** @type {[number, string][]} */ ([[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]);

/** At most three digits: 0, 0.4, 12, 1.2k. @param {number | null | undefined} value */
export function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  for (const [size, sign] of STEPS) if (value >= size * 0.9995) return figures(value / size) + sign;
  return figures(value);
}

/** @param {number} value */
function figures(value) {
  if (value === 0) return "0";
  if (value < 0.05) return "<0.1";
  return value < 9.95 ? String(Number(value.toFixed(1))) : String(Math.round(value));
}

/** A count with all its digits. @param {number | null | undefined} value */
export function count(value) {
  return value === null || value === undefined ? NONE : Math.round(value).toLocaleString("en-US");
}

/** @param {number | null | undefined} ms */
export function milliseconds(ms) {
  if (ms === null || ms === undefined) return NONE;
  if (ms >= 1000) return `${figures(ms / 1000)} s`;
  return ms < 1 ? `${Number(ms.toFixed(2))} ms` : `${figures(ms)} ms`;
}

/** @param {number | null | undefined} size */
export function bytes(size) {
  if (size === null || size === undefined) return NONE;
  for (const [least, unit] of BYTES) if (size >= least) return `${figures(size / least)} ${unit}`;
  return `${Math.round(size)} B`;
}

/** A duration in one or two units. @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  if (seconds < 10) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 100) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** @param {number} share */
export function percent(share) {
  return `${figures(share * 100)} %`;
}

/** The time of day, with milliseconds. @param {number} ms since 1970 */
export function clock(ms) {
  const at = new Date(ms);
  const parts = [at.getHours(), at.getMinutes(), at.getSeconds()].map((part) => String(part).padStart(2, "0"));
  return `${parts.join(":")}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

/** A number with its noun, singular or plural. @param {number} number @param {string} one @param {string} [several] */
export function counted(number, one, several = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : several}`;
}
