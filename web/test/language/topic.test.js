import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { checkPattern, checkTopic, matches, userWord } from "#headgate";

const golden = JSON.parse(await readFile(new URL("../../../tests/golden/topics.json", import.meta.url), "utf8"));
const users = JSON.parse(await readFile(new URL("../../../tests/golden/users.json", import.meta.url), "utf8"));

describe("topics, by the vectors that Python reads too", () => {
  it("accepts valid topics, also as patterns", () => {
    for (const topic of golden.valid_topics) {
      assert.equal(checkTopic(topic), topic);
      assert.equal(checkPattern(topic), topic);
    }
  });

  it("refuses invalid topics with a reason", () => {
    for (const topic of golden.invalid_topics) {
      assert.throws(() => checkTopic(topic), (error) => error.code === "invalid_topic" && error.parts.reason !== "", JSON.stringify(topic));
    }
  });

  it("accepts valid patterns", () => {
    for (const pattern of golden.valid_patterns) assert.equal(checkPattern(pattern), pattern);
  });

  it("refuses invalid patterns", () => {
    for (const pattern of golden.invalid_patterns) {
      assert.throws(() => checkPattern(pattern), { code: "invalid_pattern" }, JSON.stringify(pattern));
    }
  });

  it("refuses values that are not strings", () => {
    for (const name of [null, undefined, 7, true, ["a"], {}]) {
      assert.throws(() => checkTopic(name), { code: "invalid_topic" });
      assert.throws(() => checkPattern(name), { code: "invalid_pattern" });
    }
  });

  it("matches as the vectors say", () => {
    assert.ok(golden.matches.length > 80);
    for (const [pattern, topic, expected] of golden.matches) {
      assert.equal(matches(pattern, topic), expected, `${pattern} against ${topic}`);
    }
  });
});

describe("users' names, by the vectors that Python reads too", () => {
  it("makes each the one word that stands for it in topics", () => {
    assert.ok(users.words.length > 40);
    for (const [name, word] of users.words) assert.equal(userWord(name), word, JSON.stringify(name));
  });

  it("refuses an invalid name with a reason", () => {
    for (const name of [...users.refused, null, 7, undefined]) {
      assert.throws(() => userWord(name), (error) => error.code === "invalid_request" && error.parts.reason.startsWith("user: "), JSON.stringify(name));
    }
  });
});
