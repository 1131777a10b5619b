/**
 * Explanations for whoever writes the page: sentences in a development build, none in production, where they are left out.
 *
 * `process.env.NODE_ENV` is what bundlers replace (webpack, Vite, Parcel, esbuild) and what Node has. A page without a bundler has no `process`,
 * and no sentences. (The script-tag build has another file here.)
 */
import { sentenceOf, sentencesOfOptions } from "./development.js";

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

/** Report options that a call does not have. @param {string} of the call @param {string[]} known @param {Record<string, any>} given */
export function reportUnknown(of, known, given) {
  try {
    if (process.env.NODE_ENV !== "production") for (const sentence of sentencesOfOptions(of, known, given)) console.warn(sentence);
  } catch {}
}
