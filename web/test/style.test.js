/**
 * The style sheets of the demo and the console, and the design system that they share: no dead rule, no class without a rule, no value that
 * bypasses the design tokens, nothing outside a layer.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { basename, relative, resolve } from "node:path";
import { test } from "node:test";
import ts from "typescript";

const WEB = resolve(import.meta.dirname, "..");
/** The folders of the pages' templates. */
const TEMPLATES = ["templates", "demo"].map((folder) => resolve(WEB, "../server/headgate_server", folder));
/** The pages, and the design system. */
const PAGES = ["demo", "console"];
const DESIGN = "design";
const TOKENS = "design/tokens.css";
const ENTRIES = PAGES.map((page) => `${page}/styles/${page}.css`);
const SCRIPTS = [...PAGES.map((page) => `${page}/src`), DESIGN];

/** The files of some folders of web/ that end so, by their path there. @param {string[]} folders @param {string} ending @returns {string[]} */
const filesOf = (folders, ending) =>
  folders.flatMap((folder) =>
    readdirSync(resolve(WEB, folder), { recursive: true, encoding: "utf8" })
      .filter((name) => name.endsWith(ending))
      .map((name) => `${folder}/${name.replaceAll("\\", "/")}`),
  );

/**
 * @typedef {{ file: string, within: string[], selector: string, property: string, value: string }} Declaration `within`: the
 *   at-rules around it
 */

/** Every style sheet but the entries, by its path below web/. */
const sheets = new Map(
  filesOf([...PAGES.map((page) => `${page}/styles`), DESIGN], ".css")
    .filter((name) => !ENTRIES.includes(name))
    .map((name) => [name, readFileSync(resolve(WEB, name), "utf8")]),
);
const declarations = [...sheets].flatMap(([file, text]) => parse(file, text));
const components = declarations.filter(({ file }) => file !== TOKENS);

/** Read the declarations of a sheet. @param {string} file @param {string} text @returns {Declaration[]} */
function parse(file, text) {
  /** @type {Declaration[]} */
  const found = [];
  /** @type {string[]} */
  const open = [];
  // Comments go, and so do strings, which may hold any of the signs that end a part.
  const plain = text.replaceAll(/\/\*.*?\*\//gs, "").replaceAll(/"[^"]*"/g, '""');
  for (const { 1: part, 2: end } of plain.matchAll(/([^{};]*)([{};])/g)) {
    const words = part.trim();
    if (end === "{") open.push(words);
    else if (words) {
      const [, property, value] = /** @type {string[]} */ (words.match(/^([\w-]+)\s*:\s*(.*)$/s) ?? assert.fail(`${file}: ${words}`));
      found.push({ file, within: open.filter((each) => each.startsWith("@")), selector: open.at(-1) ?? "", property, value });
    }
    if (end === "}") open.pop();
  }
  assert.deepEqual(open, [], `${file}: a block is not closed`);
  return found;
}

/** @param {Declaration} declaration @returns {string} */
function place({ file, selector, property, value }) {
  return `${file}: ${selector} { ${property}: ${value} }`;
}

/** The text of each template. */
const templates = TEMPLATES.flatMap((folder) => readdirSync(folder).filter((name) => name.endsWith(".html")).map((name) => readFileSync(resolve(folder, name), "utf8")));

/** Read the classes that the templates give. @returns {string[]} */
function classesOfTemplates() {
  return templates.flatMap((text) => [...text.matchAll(/\bclass="([^"]*)"/g)].flatMap(([, names]) => names.split(/\s+/).filter(Boolean)));
}

/** Read the classes that the pages' scripts give: the values of `className`, and the arguments of `classList`'s methods. @returns {string[]} */
function classesOfScript() {
  /** @type {string[]} */
  const found = [];
  for (const name of filesOf(SCRIPTS, ".js")) {
    const source = ts.createSourceFile(name, readFileSync(resolve(WEB, name), "utf8"), ts.ScriptTarget.ES2022, true, ts.ScriptKind.JS);
    /** @param {ts.Node} node */
    const collect = (node) => {
      assert.ok(!ts.isTemplateExpression(node), `${name}: a class is written out, so that a search finds it: ${node.getText()}`);
      if (ts.isStringLiteralLike(node)) found.push(...node.text.split(/\s+/).filter(Boolean));
      else if (ts.isConditionalExpression(node)) [node.whenTrue, node.whenFalse].forEach(collect);
      else ts.forEachChild(node, collect);
    };
    /** @param {ts.Node} node */
    const visit = (node) => {
      if (ts.isPropertyAssignment(node) && node.name.getText() === "className") collect(node.initializer);
      const called = ts.isCallExpression(node) ? node.expression.getText() : "";
      if (ts.isCallExpression(node) && /\.classList\.(add|remove|toggle)$/.test(called)) collect(node.arguments[0]);
      ts.forEachChild(node, visit);
    };
    visit(source);
  }
  return found;
}

test("every class of the page has a rule, and every rule's class is on the page", () => {
  const styled = components.flatMap(({ selector }) => [...selector.matchAll(/\.([a-zA-Z][\w-]*)/g)].map(([, name]) => name));
  const given = [...classesOfTemplates(), ...classesOfScript()];
  assert.ok(given.includes("card") && given.includes("fresh") && given.includes("bar") && given.includes("trouble"));
  assert.deepEqual([...new Set(styled)].sort(), [...new Set(given)].sort());
});

test("every status, outcome and state that a rule asks for is one that the page sets", () => {
  // The users of the demo, by whom some colours are chosen.
  const users = readFileSync(resolve(TEMPLATES[1], "tokens.py"), "utf8");
  const texts = [users, ...templates, ...filesOf(SCRIPTS, ".js").map((name) => readFileSync(resolve(WEB, name), "utf8"))];
  const plain = [...sheets.values()].join("\n").replaceAll(/\/\*.*?\*\//gs, "");
  const asked = [...plain.matchAll(/\[(?:data|aria)-[\w-]+="([^"]*)"\]/g)].map(([, value]) => value);
  assert.ok(asked.length > 8);
  assert.deepEqual(asked.filter((value) => !texts.some((text) => text.includes(`"${value}"`)) && value !== "true"), []);
});

/** Words other than colours in a value with colours. */
const KEYWORDS = "none inherit auto solid dashed inset center contain no-repeat transparent currentcolor url var calc max repeating-linear-gradient to right";
/** The colours of a system that has replaced the page's. They are the reader's, so there is no token for them. */
const SYSTEM = "CanvasText SelectedItem SelectedItemText";

test("colours are tokens", () => {
  const coloured = components.filter(({ property }) => /color$|^background|^border(?!-radius|-collapse)|^outline(?!-offset)|shadow$|^fill$|^stroke$/.test(property));
  assert.ok(coloured.length > 100);
  const raw = coloured.filter(({ value, within }) => {
    const allowed = within.some((each) => each.includes("forced-colors")) ? `${KEYWORDS} ${SYSTEM}` : KEYWORDS;
    const words = value.replaceAll(/var\(--[\w-]+/g, "var(").replaceAll(/[\d.]+(px|%|em)?/g, " ").match(/#?[a-zA-Z][\w-]*/g) ?? [];
    return words.some((word) => !allowed.split(" ").includes(word));
  });
  assert.deepEqual(raw.map(place), []);
  // In whatever property: no notation of a colour at all.
  assert.deepEqual(components.filter(({ value }) => /#[\da-f]{3,8}\b|\b(rgb|hsl|hwb|lab|lch|oklab|oklch|color|color-mix|light-dark)a?\(/i.test(value)).map(place), []);
});

/** Property, and the values that it may have without a token. */
const SCALES = /** @type {[RegExp, RegExp][]} */ ([
  [/^font(-size|-family|-weight)?$/, /^inherit$/],
  [/^letter-spacing$/, /^normal$/],
  [/^line-height$/, /^normal$/],
  [/^border-radius$/, /^(0|50%)$/],
  [/^box-shadow$/, /^none$|^inset 0 0 0 1px var\(--color-[\w-]+\)$/],
  [/^z-index$/, /^$/],
  [/^(animation|transition)/, /^none$/],
]);

test("type, radius, shadow, depth and motion are tokens", () => {
  for (const [name, plain] of SCALES) {
    const found = components.filter(({ property }) => name.test(property));
    assert.ok(found.length, String(name));
    const raw = found.filter(({ value }) => !plain.test(value) && (!value.includes("var(--") || /\d(px|rem|m?s)\b/.test(value)));
    assert.deepEqual(raw.map(place), []);
  }
});

test("gaps, paddings and margins are steps of the scale", () => {
  const spaced = components.filter(({ property }) => /^(row-|column-)?gap$|^padding|^margin/.test(property));
  assert.ok(spaced.length > 100);
  assert.deepEqual(spaced.filter(({ value }) => /\d(px|rem|em)\b/.test(value)).map(place), []);
});

test("every token is used, and every token that is used is there", () => {
  const set = declarations.filter(({ property }) => property.startsWith("--")).map(({ property }) => property);
  const used = declarations.flatMap(({ value }) => [...value.matchAll(/var\((--[\w-]+)/g)].map(([, name]) => name));
  assert.deepEqual([...new Set(used)].sort(), [...new Set(set)].sort());
});

test("every colour has a light and a dark side under one name", () => {
  const colours = declarations.filter(({ file, property, within }) => file === TOKENS && property.startsWith("--color-") && !within.length);
  assert.ok(colours.length > 12);
  const flat = colours.filter(({ value }) => !/^light-dark\(#[\da-f]{6}, #[\da-f]{6}\)$/.test(value) && !/^color-mix\(in srgb, var\(/.test(value));
  assert.deepEqual(flat.map(place), []);
});

test("every file is imported once, in a layer that is declared, a component in that of the components", () => {
  const design = filesOf([DESIGN], ".css");
  for (const [at, name] of ENTRIES.entries()) {
    const entry = readFileSync(resolve(WEB, name), "utf8").replaceAll(/\/\*.*?\*\//gs, "");
    const layers = entry.match(/@layer ([^;]+);/)?.[1].split(", ");
    assert.deepEqual(layers?.filter((layer) => layer !== "vendor"), ["tokens", "reset", "base", "layout", "components", "utilities"]);
    const imports = [...entry.matchAll(/@import "([^"]+)" layer\((\w+)\);/g)].map(([, file, layer]) => ({ file: relative(WEB, resolve(WEB, name, "..", file)).replaceAll("\\", "/"), layer }));
    const ours = imports.filter(({ layer }) => layer !== "vendor");
    const own = [...sheets.keys()].filter((file) => file.startsWith(`${PAGES[at]}/`));
    assert.deepEqual(ours.map(({ file }) => file).sort(), [...own, ...design].sort());
    for (const { file, layer } of ours) {
      assert.equal(file.includes("/components/") ? "components" : basename(file, ".css"), layer);
    }
    assert.equal(entry.replaceAll(/@(layer|import)[^;]*;/g, "").trim(), "", "the entry holds no rule of its own");
  }
});
