/** Tokens: when the next is due. */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createTokens, refreshDelayMs } from "../../src/connection/token.js";

describe("tokens", () => {
  it("are unavailable when their function throws, whatever it throws, or brings no text or a page", async () => {
    for (const thrown of [Error("mine"), Symbol("mine"), Object.create(null), null, undefined, 5]) {
      const { current } = createTokens(() => {
        throw thrown;
      });
      await assert.rejects(current(), { code: "token_unavailable", retry: true });
    }
    for (const page of ["<!doctype html>", "\n <html>"]) {
      for (const token of [page, new Response(page)]) await assert.rejects(createTokens(() => token).current(), { code: "token_unavailable", retry: true, message: /it is HTML/ });
    }
    for (const token of [5, {}, true, [], () => "t"]) {
      await assert.rejects(createTokens(() => /** @type {any} */ (token)).current(), { code: "token_unavailable", message: /token must be string or null, not / });
    }
  });

  const jwt = (claims) => `h.${btoa(JSON.stringify(claims)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}.s`;

  it("are refreshed after most of the rest of their life", () => {
    assert.equal(refreshDelayMs(jwt({ exp: 1100, iat: 1000 }), 1_000_000), 80_000);
    assert.equal(refreshDelayMs(jwt({ exp: 1100, iat: 1000 }), 1_050_000), 40_000);
    assert.equal(refreshDelayMs(jwt({ exp: 1100, sub: "ü?>" }), 1_000_000), 80_000);
  });

  it("are refreshed in time by a clock that is wrong", () => {
    assert.equal(refreshDelayMs(jwt({ exp: 1100, iat: 1000 }), 0), 80_000);
    assert.equal(refreshDelayMs(jwt({ exp: 1100, iat: 1000 }), 9_000_000), 80_000);
    assert.equal(refreshDelayMs(jwt({ exp: 1100 }), 9_000_000), 1000);
    assert.equal(refreshDelayMs(jwt({ exp: 1000, iat: 0 }), 0), 800_000);
  });

  it("are left alone when they do not say when they expire", () => {
    for (const token of [undefined, "", "opaque", "a.b.c", jwt({}), jwt({ exp: "soon" }), `h.${btoa("null")}.s`]) {
      assert.ok(!refreshDelayMs(token, 0));
    }
  });
});
