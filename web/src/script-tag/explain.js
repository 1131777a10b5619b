/**
 * Explanations in a page without modules. A file in the folder of the script has the sentences (development.js). It is loaded when there is an error that
 * waiting does not cure, and its text goes to the console, once for each code.
 *
 * @import * as Development from "../language/development.js"
 */
import { beside } from "./beside.js";

/** Explained codes. @type {Set<string>} */
const explained = new Set();

/** As in language/explain.js, but the text of the error stays short. @param {string} code @param {Record<string, any>} parts @param {boolean} retry @param {string} [message] @returns {undefined} */
export function textOf(code, parts, retry, message) {
  if (!retry && explained.size < explained.add(code).size) say(({ sentenceOf }) => [`headgate: ${sentenceOf(code, parts, message)}`]);
}

/** As in language/explain.js. @param {string} of the call @param {object} table its options @param {Record<string, any>} given */
export function reportUnknown(of, table, given) {
  if (given.auth || Object.keys(given).some((name) => !(name in table))) say(({ sentencesOfOptions }) => sentencesOfOptions(of, Object.keys(table), given));
}

/** As in language/explain.js. @param {string} name */
export function reportName(name) {
  if (/connect(_|$)/.test(name)) say(({ sentencesOfName }) => sentencesOfName(name));
}

/** As in language/explain.js, in production. */
export function explainMethods() {}

/** @param {(development: typeof Development) => string[]} sentences */
async function say(sentences) {
  try {
    for (const sentence of sentences(await beside("headgate.development.js"))) console.warn(sentence);
  } catch {}
}

/** As in language/explain.js, in production. @param {import("../language/options.js").Rule} rule */
export const wordsOf = (rule) => String(rule);
