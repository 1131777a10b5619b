/** The demo's preferences: remembered per user, and never broken by what is stored. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { kindsFor, Preferences } from "../../demo/src/preferences.js";

/** A storage that keeps what it is given. */
function memory() {
  /** @type {Map<string, string>} */
  const held = new Map();
  return { held, getItem: (/** @type {string} */ key) => held.get(key) ?? null, setItem: (/** @type {string} */ key, /** @type {string} */ value) => void held.set(key, value) };
}

/** @param {Preferences} preferences */
function ways({ kinds }) {
  return Object.fromEntries(kinds.map(({ name, way }) => [name, way]));
}

const DEFAULTS = Object.fromEntries(kindsFor("ana").map(({ name, way }) => [name, way]));

test("a choice is there again for the same user, and for no other", () => {
  const storage = memory();
  const ana = new Preferences("ana", () => storage);
  ana.choose(ana.kinds[0], "centre");
  assert.equal(ways(new Preferences("ana", () => storage)).shipped, "centre");
  assert.deepEqual(ways(new Preferences("ben", () => storage)), DEFAULTS);
});

test("a user's own messages are a user's own", () => {
  assert.equal(kindsFor("ben").find(({ name }) => name === "personal")?.pattern, "users.ben.#");
});

test("every type has a valid way with any stored value", () => {
  for (const stored of ["", "null", "7", "[]", "{", '"toast"', '{"shipped":"loud","failed":null,"__proto__":{"created":"off"},"constructor":"off"}']) {
    const storage = memory();
    storage.held.set("headgate-demo preferences ana", stored);
    assert.deepEqual(ways(new Preferences("ana", () => storage)), DEFAULTS, stored);
  }
});

test("without a storage a choice lasts as long as the page", () => {
  const forbidden = () => {
    throw new Error("denied");
  };
  const preferences = new Preferences("ana", forbidden);
  preferences.choose(preferences.kinds[0], "off");
  assert.equal(ways(preferences).shipped, "off");
});
