/**
 * Explanations for the developer of the page. A development build has the sentences, and a production build drops them.
 *
 * Bundlers (webpack, Vite, Parcel, esbuild) replace `process.env.NODE_ENV`, and Node has it. A page without a bundler has no `process` and no sentences. (The
 * script-tag build replaces this file.)
 */
import { addHints, sentenceOf, sentencesOfName, sentencesOfOptions, wordsOfRule } from "./development.js";

/**
 * Return the text of an error; undefined in production.
 * @param {string} code @param {Record<string, any>} parts
 * @param {boolean} _retry
 * @param {string} [message] the gateway's
 */
export function textOf(code, parts, _retry, message) {
  try {
    if (process.env.NODE_ENV !== "production") return sentenceOf(code, parts, message);
  } catch {}
}

/** Report options that a call does not know. @param {string} of the call @param {object} table its options @param {Record<string, any>} given */
export function reportUnknown(of, table, given) {
  try {
    if (process.env.NODE_ENV !== "production") for (const sentence of sentencesOfOptions(of, Object.keys(table), given)) console.warn(sentence);
  } catch {}
}

/** Report a topic with the name of another client's event, and a name close to that of a lifecycle event. @param {string} name */
export function reportName(name) {
  try {
    if (process.env.NODE_ENV !== "production") for (const sentence of sentencesOfName(name)) console.warn(sentence);
  } catch {}
}

/** Make the methods of other clients name ours. @param {object} gate */
export function explainMethods(gate) {
  try {
    if (process.env.NODE_ENV !== "production") addHints(gate);
  } catch {}
}

/** Return a rule in words, or as written in production. @param {import("./options.js").Rule} rule */
export function wordsOf(rule) {
  try {
    if (process.env.NODE_ENV !== "production") return wordsOfRule(rule);
  } catch {}
  return String(rule);
}
