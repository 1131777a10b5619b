/**
 * An event in words, for a toast. Pure; plain text only, whatever the data holds.
 *
 * @typedef {{ title: string, detail: string, status: string }} Words
 */
import { isStatus } from "./order.js";

/** Longest detail of a toast, in characters: a payload may be 64 KiB. */
const MAX_DETAIL = 160;

/** @type {Record<string, string>} */
const VERBS = { shipped: "shipped", failed: "failed", created: "came in", updated: "changed", deleted: "was deleted", restored: "was restored" };

/**
 * @param {string} topic
 * @param {any} data
 * @param {{ user: string, names: Record<string, string> }} reader
 * @returns {Words}
 */
export function wordsFor(topic, data, { user, names }) {
  const [root, id, verb] = topic.split(".");
  if (root !== "orders" || !verb) return { title: topic, detail: shorten(textOf(data)), status: "" };
  const fields = data !== null && typeof data === "object" ? data : {};
  const by = typeof fields.by === "string" ? fields.by : "";
  const who = by === user ? "by you" : by ? `by ${Object.hasOwn(names, by) ? names[by] : by}` : "from outside";
  const parts = [verb === "shipped" && text(fields.carrier), text(fields.customer), text(fields.note), who];
  return {
    title: `Order ${id} ${Object.hasOwn(VERBS, verb) ? VERBS[verb] : verb}`,
    detail: shorten(parts.filter(Boolean).join(" · ")),
    status: isStatus(verb) ? verb : isStatus(fields.status) ? fields.status : "",
  };
}

/** @param {any} data */
function textOf(data) {
  if (typeof data === "string") return data;
  if (typeof data?.text === "string") return data.text;
  return JSON.stringify(data) ?? "";
}

/** @param {any} value */
function text(value) {
  return typeof value === "string" ? value : "";
}

/** @param {string} value */
function shorten(value) {
  return value.length > MAX_DETAIL ? `${value.slice(0, MAX_DETAIL)}…` : value;
}
