/**
 * A payload as a tree of text: folded and unfolded by the browser's own `details`. Whatever the payload holds, it is set as text.
 *
 * Bounded: of a list or an object MOST parts are made, and what lies deeper than DEEPEST is written as JSON.
 */
import { element } from "../../design/element.js";

const MOST = 200;
const DEEPEST = 12;
const LONGEST = 10_000;

/** @param {any} value @param {number} [depth] @returns {HTMLElement} */
export function tree(value, depth = 0) {
  if (value === null || typeof value !== "object") return leaf(value);
  const entries = Array.isArray(value) ? value.map((each, at) => /** @type {[string, any]} */ ([String(at), each])) : Object.entries(value);
  const brackets = Array.isArray(value) ? "[]" : "{}";
  if (!entries.length) return element("span", { className: "plain", text: brackets });
  if (depth >= DEEPEST) return element("span", { className: "plain", text: cut(JSON.stringify(value)) });
  const items = entries.slice(0, MOST).map(([name, each]) => element("li", {}, element("span", { className: "name", text: `${name}: ` }), tree(each, depth + 1)));
  if (entries.length > MOST) items.push(element("li", {}, element("span", { className: "name", text: `… ${entries.length - MOST} more` })));
  const summary = element("summary", { text: Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}` });
  return element("details", { open: depth < 3 }, summary, element("ul", { role: "list" }, ...items));
}

/** @param {any} value */
function leaf(value) {
  return element("span", { className: typeof value === "string" ? "text" : "plain", text: cut(JSON.stringify(value) ?? "undefined") });
}

/** @param {string} text */
const cut = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST)}… (${text.length} characters)` : text);
