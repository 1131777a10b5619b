/** The folders of the sources, in the order in which they build on each other (docs/architecture.md). */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { it } from "node:test";

/** Each folder imports only from itself and from rows above its own; `.` is the top of web/src. */
const ROWS = [
  ["base"], ["language"], ["transport"], ["connection", "subscriptions"], ["session"], ["."],
  ["live", "offline", "presence", "tabs"], ["stores"], ["inbox"], ["backbone"], ["script-tag"],
];
const rowOf = (/** @type {string} */ folder) => ROWS.findIndex((row) => row.includes(folder));

it("imports run one way between folders, those of types too", () => {
  const folder = new URL("../src/", import.meta.url);
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".js"));
  const imports = files.flatMap((file) => {
    const specifiers = readFileSync(new URL(file, folder), "utf8").matchAll(/(?:from |import\(|require\()"(\.[^"]+)"/g);
    return Array.from(specifiers, ([, specifier]) => ({ file, from: dirname(file), to: dirname(join(dirname(file), specifier)), specifier }));
  });
  assert.deepEqual([...new Set(files.map(dirname))].sort(), ROWS.flat().sort());
  const wrong = imports.filter(({ from, to }) => from !== to && rowOf(to) >= rowOf(from));
  assert.deepEqual(wrong.map(({ file, specifier }) => `${file} imports ${specifier}`), []);
});
