/** The types of the package: those that an application compiles with, as they are shipped. Needs `npm run build`. */
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import ts from "typescript";
import { Dispatcher } from "#headgate";
// No part of an application's imports.
import { EXPLAINED, sentenceOf } from "../src/language/development.js";

const require = createRequire(import.meta.url);
const WEB = fileURLToPath(new URL("..", import.meta.url));
const isBuilt = import.meta.resolve("#headgate").includes("/dist/");
const SETTINGS = {
  strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, noEmit: true, skipLibCheck: false,
  module: "nodenext", jsx: "react-jsx", target: "es2022", lib: ["es2022", "dom", "dom.iterable"], types: [],
};

// On the sources there is nothing to see here.
describe("an application in strict TypeScript", { skip: !isBuilt }, () => {
  let folder;

  before(async () => {
    // Inside the workspace, for Backbone's own types, and beside the sources, which are checked too; the package is the packed one.
    const build = join(WEB, "../build");
    await mkdir(build, { recursive: true });
    folder = await mkdtemp(join(build, "typed-"));
    const run = (command, ...words) => execFileSync(command, words, { cwd: WEB, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
    const packed = run("npm", "pack", "--ignore-scripts", "--silent", "--pack-destination", folder).trim();
    await mkdir(join(folder, "node_modules/headgate"), { recursive: true });
    run("tar", "-xzf", join(folder, packed), "-C", join(folder, "node_modules/headgate"), "--strip-components=1");
    for (const kind of ["mts", "cts"]) await cp(join(WEB, "test/types/consumer.ts"), join(folder, `consumer.${kind}`));
    await cp(join(WEB, "test/types/frameworks.ts"), join(folder, "frameworks.mts"));
    // The page on frameworks has a block for React, and one for the stores.
    const page = await readFile(new URL("../../docs/frameworks.md", import.meta.url), "utf8");
    const [react, ...more] = [...page.matchAll(/```tsx?\n(.*?)```/gs)].map(([, code]) => code);
    await writeFile(join(folder, "page.tsx"), react);
    await writeFile(join(folder, "page.mts"), more.join("\n"));
    // The types that `headgate types` writes from schemas (tests/unit/services/schemas/test_typescript.py), and a page that uses them.
    await cp(join(WEB, "../tests/golden/topics.ts"), join(folder, "topics.mts"));
    await cp(join(WEB, "test/types/generated.ts"), join(folder, "generated.mts"));
    await writeFile(join(folder, "script.mts"), 'import "headgate/global";\nwindow.headgate.connect().on("a.b", () => {});\nexport class Mine extends headgate.LiveModel {}\n');
    await writeFile(join(folder, "wrong.mts"), 'import { connect } from "headgate";\nexport const wrong: number = connect().status;\n');
    await writeFile(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions: SETTINGS, files: ["consumer.mts", "consumer.cts", "frameworks.mts", "generated.mts", "page.tsx", "page.mts", "script.mts", "wrong.mts"] }));
  });

  after(() => rm(folder, { recursive: true, force: true }));

  /** The oldest supported compiler, and the newest, which `make nightly` runs. Each returns the lines of its output. @type {Record<string, () => Promise<string[]>>} */
  const COMPILERS = {
    // Of everything in the folder, the package included. Its command would look through React, Vue, Svelte and the DOM, too, for twice the time.
    "typescript-5.4": async () => {
      const old = require("typescript-5.4");
      const { options, fileNames } = old.getParsedCommandLineOfConfigFile(join(folder, "tsconfig.json"), {}, { ...old.sys, onUnRecoverableConfigFileDiagnostic: assert.fail });
      const program = old.createProgram(fileNames, options);
      const files = program.getSourceFiles().filter(({ fileName }) => fileName.startsWith(folder));
      assert.ok(files.some(({ fileName }) => fileName.includes("/node_modules/headgate/dist/types-cjs/")));
      const found = [program.getOptionsDiagnostics(), program.getGlobalDiagnostics(), ...files.flatMap((file) => [program.getSyntacticDiagnostics(file), program.getSemanticDiagnostics(file)])].flat();
      return old.formatDiagnostics(found, { getCanonicalFileName: (name) => name, getCurrentDirectory: () => folder, getNewLine: () => "\n" }).split("\n");
    },
    "typescript-7": async () => {
      const program = join(require.resolve("typescript-7/package.json"), "../bin/tsc");
      const { stdout } = await promisify(execFile)(process.execPath, [program, "--pretty", "false", "--project", folder]).catch((error) => error);
      return stdout.split("\n");
    },
  };

  for (const [compiler, compile] of Object.entries(COMPILERS)) {
    it(`compiles by import and by require, except for its one mistake: ${compiler}`, { skip: compiler === "typescript-7" && !process.env.HEADGATE_NIGHTLY }, async () => {
      const [first, ...more] = (await compile()).filter((line) => / error TS\d+: /.test(line));
      assert.match(first, /wrong\.mts\(2,14\): error TS2322: /);
      assert.deepEqual(more, []);
    });
  }
});

describe("the declarations", async () => {
  /** The exported statements of a declaration file. */
  async function exported(file) {
    const text = await readFile(join(WEB, "types", file), "utf8");
    const source = ts.createSourceFile(file, text, ts.ScriptTarget.ES2022);
    return source.statements.filter((each) => ts.canHaveModifiers(each) && ts.getModifiers(each)?.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword));
  }

  /** Each declaration file that the package exports, with the module that it declares, while a script has none to import. */
  const { exports } = require("../package.json");
  const parts = Object.keys(exports).filter((name) => exports[name].import && !name.startsWith("./global"));
  const modules = Object.fromEntries(parts.map((name) => [`${name === "." ? "index" : name.slice(2)}.d.ts`, `#headgate${name.slice(1)}`]));
  for (const [file, specifier] of Object.entries(modules)) modules[file] = await import(specifier);

  it("are there for every part of the package", () => {
    for (const [name, { import: esm, require: cjs }] of Object.entries(exports)) {
      if (!name.endsWith(".json") && !name.endsWith(".min")) assert.ok([esm, cjs].every((each) => existsSync(join(WEB, "types", each?.types.split("/").at(-1)))), name);
    }
  });

  for (const [file, module] of Object.entries(modules)) {
    it(`name what the package exports: ${file}`, async () => {
      const statements = await exported(file);
      const names = statements.filter((each) => ts.isClassDeclaration(each) || ts.isFunctionDeclaration(each)).map(({ name }) => name.text);
      const constants = statements.filter(ts.isVariableStatement).flatMap(({ declarationList }) => declarationList.declarations.map(({ name }) => name.text));
      assert.deepEqual([...new Set([...names, ...constants])].sort(), Object.keys(module).sort());
    });

    it(`name the members of its classes: ${file}`, async () => {
      for (const declared of (await exported(file)).filter(ts.isClassDeclaration)) {
        const { prototype } = module[declared.name.text];
        const arguments_ = { Dispatcher: [], HeadgateError: ["closed"], Room: [new Dispatcher(), "a", new Dispatcher()] }[declared.name.text];
        const instance = arguments_ ? new module[declared.name.text](...arguments_) : prototype;
        const isStatic = (member) => ts.getModifiers(member)?.some(({ kind }) => kind === ts.SyntaxKind.StaticKeyword);
        const members = declared.members.filter((member) => member.name && !isStatic(member)).map(({ name }) => name.text);
        assert.deepEqual(members.filter((name) => !(name in instance)), [], `${declared.name.text} lacks`);
        const inherited = Object.getPrototypeOf(prototype);
        const own = Object.getOwnPropertyNames(prototype).filter((name) => !name.startsWith("_") && !(name in inherited));
        assert.deepEqual(own.filter((name) => !members.includes(name)), [], `${declared.name.text} is not said to have`);
      }
    });
  }

  it("name the codes of errors that the protocol's page lists", async () => {
    const page = await readFile(new URL("../../docs/protocol.md", import.meta.url), "utf8");
    const listed = [...page.slice(page.indexOf("## Errors"), page.indexOf("## How a connection ends")).matchAll(/^\| `(\w+)` \|/gm)].map(([, code]) => code);
    const alias = (await exported("index.d.ts")).find((each) => ts.isTypeAliasDeclaration(each) && each.name.text === "ErrorCode");
    assert.deepEqual(alias.type.types.map(({ literal }) => literal.text).sort(), listed.sort());
    assert.deepEqual(Object.keys(EXPLAINED).sort(), listed, "a development build explains each");
  });

  it("name the parts of errors that the protocol's page lists", async () => {
    const page = await readFile(new URL("../../docs/protocol.md", import.meta.url), "utf8");
    const rows = [...page.slice(page.indexOf("## Errors"), page.indexOf("## How a connection ends")).matchAll(/^\| `(\w+)` \|([^|]*)\|/gm)];
    const listed = rows.map(([, code, parts]) => [code, parts.replace(/_(\w)/g, (_, letter) => letter.toUpperCase()).match(/\w+\??/g) ?? []]).filter(([, parts]) => parts.length);
    const { members } = (await exported("index.d.ts")).find((each) => ts.isInterfaceDeclaration(each) && each.name.text === "ErrorParts");
    const declared = members.map(({ name, type }) => [name.text, type.members.map((each) => `${each.name.text}${each.questionToken ? "?" : ""}`).filter((each) => each !== "retryAfterS?")]);
    assert.deepEqual(Object.fromEntries(declared), Object.fromEntries(listed));
  });

  it("name each lifecycle event that the sources trigger, and no other", async () => {
    const reported = await Promise.all(
      (await readdir(join(WEB, "src"), { recursive: true })).filter((name) => name.endsWith(".js")).map(async (name) => (await readFile(join(WEB, "src", name), "utf8")).match(/(?<!ommit )"(connection|delivery|status|state|publish|presence|member|tabs):[a-z]+"/g) ?? []),
    );
    const declared = await Promise.all(["index.d.ts", "presence.d.ts", "tabs.d.ts"].map(async (file) => (await readFile(join(WEB, "types", file), "utf8")).match(/(?<=^\s+)"[a-z]+:[a-z]+"(?=: \[)/gm)));
    // Between the parts of the package.
    const inside = ['"presence:notice"'];
    assert.deepEqual([...new Set(reported.flat())].filter((name) => !inside.includes(name)).sort(), declared.flat().sort());
  });

  it("are of errors whose sentences have a cure and lead to a heading of the documentation", async () => {
    const docs = new URL("../../docs/", import.meta.url);
    for (const code of Object.keys(EXPLAINED)) {
      for (const message of [undefined, "the gateway's words"]) {
        const text = sentenceOf(code, { reason: "no_token", known: ["a", "b"] }, message);
        const [, file, anchor] = text.match(/^.+\. .+\. \(\w+: docs\/([\w/-]+\.md)(?:#([\w-]+))?\)$/) ?? assert.fail(text);
        const headings = [...(await readFile(new URL(file, docs), "utf8")).matchAll(/^#+ (.*)$/gm)].map(([, heading]) => heading.toLowerCase().replaceAll(/[^\w -]/g, "").replaceAll(" ", "-"));
        assert.ok(!anchor || headings.includes(anchor), `${code}: ${file}#${anchor}`);
      }
    }
  });

  it("are of errors of which one says that nothing was sent only where that is so", () => {
    assert.match(sentenceOf("disconnected", {}), /Nothing was sent/);
    assert.match(sentenceOf("disconnected", { request: "seen" }), /"seen"\. The request may have arrived/);
  });

  it("begin with a sentence that fits the tooltip of an editor", async () => {
    for (const file of Object.keys(modules)) {
      const text = await readFile(join(WEB, "types", file), "utf8");
      for (const [comment] of text.matchAll(/\/\*\*.*?\*\//gs)) {
        const [first] = comment.replaceAll(/\s*\n \s*\*( |$)?|\/\*\* ?| ?\*\//gm, " ").trim().split(/(?<=\.) /);
        assert.ok(first.length < 130, comment);
      }
    }
  });
});
