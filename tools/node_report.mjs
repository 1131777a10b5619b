/**
 * What Node's test runner prints in the test command: a dot for each file's share of the tests, the failures in full, the totals.
 * In: the runner's events. Out: text; the names of failed tests also go, a line each, into the file that FAILED_TESTS names.
 */
import { appendFileSync } from "node:fs";
import { relative } from "node:path";
import { inspect } from "node:util";

const TESTS_PER_DOT = 50;

/** A suite fails when a test in it does: the test is the news. @param {any} data */
const isEcho = ({ details }) => details?.error?.failureType === "subtestsFailed";

/** @param {AsyncIterable<{ type: string, data: any }>} events @returns {AsyncGenerator<string>} */
export default async function* report(events) {
  /** @type {{ name: string, error: any }[]} */
  const failures = [];
  /** Names of the tests that the next one is inside of, for each file. @type {Map<string | undefined, string[]>} */
  const within = new Map();
  let passed = 0;
  let skipped = 0;
  for await (const { type, data } of events) {
    if (type === "test:start") {
      const names = within.get(data.file) ?? [];
      names.length = data.nesting;
      names.push(data.name);
      within.set(data.file, names);
    } else if (type === "test:pass") {
      if (data.skip !== undefined) skipped += 1;
      else if (data.details?.type !== "suite" && ++passed % TESTS_PER_DOT === 0) yield ".";
    } else if (type === "test:fail" && data.todo === undefined && !isEcho(data)) {
      yield "F";
      const names = (within.get(data.file) ?? []).slice(0, data.nesting);
      failures.push({ name: [data.file ? relative(process.cwd(), data.file) : "", ...names, data.name].filter(Boolean).join(" > "), error: data.details.error });
    } else if (type === "test:stderr" || type === "test:stdout") {
      yield data.message;
    }
  }
  yield "\n";
  for (const { name, error } of failures) {
    yield `\nFAILED ${name}\n${inspect(error?.cause ?? error, { depth: 6 }).replaceAll(/^/gm, "    ")}\n`;
    if (process.env.FAILED_TESTS) appendFileSync(process.env.FAILED_TESTS, `${name}\n`);
  }
  yield `${passed} passed, ${failures.length} failed${skipped ? `, ${skipped} skipped` : ""}\n`;
}
