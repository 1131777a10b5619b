/**
 * Tokens: where the present one comes from, and when the next one is due. The gateway verifies them.
 *
 * @typedef {string | null | undefined} Token
 * @typedef {{ ok: boolean, status: number, text: () => Promise<string> }} Answer of `fetch`
 * @typedef {Token | (() => Token | Answer | Promise<Token | Answer>)} TokenSource
 */
import { HeadgateError } from "../language/errors.js";
import { checkRule } from "../language/options.js";

/** Share of a token's lifetime after which it is refreshed. The rest is for retries. */
const REFRESH_AT = 0.8;

/**
 * The tokens of one client. A token that the application gave (`keep`) precedes the source, until the gateway refuses it or the source returns the next
 * one at a refresh.
 * @param {TokenSource} source
 */
export function createTokens(source) {
  const asks = typeof source === "function";
  /** undefined: none. @type {string | null | undefined} */
  let given;

  /** Return the source's token. An error of the source, and a failed answer, become `token_unavailable`. */
  async function ask() {
    try {
      /** @type {any} */
      let token = await (asks ? source() : source);
      if (token?.text) {
        if (!token.ok) throw Error(`HTTP ${token.status}`);
        token = await token.text();
      }
      checkRule("token", "string null", token);
      // Of an error or a sign-in. The gateway would refuse it for good.
      if (/^\s*</.test(token)) throw Error("it is HTML");
      return token;
    } catch (error) {
      throw new HeadgateError("token_unavailable", { reason: error }, true, undefined, error);
    }
  }

  const current = async () => (given === undefined ? ask() : given);

  return {
    /** Whether the source is a function, so that it can return another token. */
    asks,

    /** Return the token for a CONNECT. @returns {Promise<string | null | undefined>} rejected with `token_unavailable` */
    current,

    /** Return the token for a refresh, from the source if it is a function. @returns {Promise<string | null | undefined>} rejected as above */
    next: asks ? ask : current,

    /** The gateway has accepted a token, or the next CONNECT shows it. @param {string | null | undefined} token @param {boolean} isGiven by the application, so that it precedes the source */
    keep(token, isGiven) {
      if (isGiven || asks) given = isGiven ? token : undefined;
    },

    /**
     * The gateway refused a token. Return whether there may be another one. One that the application gave during the attempt has not been refused.
     * @param {Token} token @param {boolean} isExpired whether it was refused because it has expired
     */
    refused(token, isExpired) {
      const another = (asks && isExpired) || given !== undefined;
      if (token === given) given = undefined;
      return another;
    },
  };
}

/** Return the claims of a JWT. @param {any} token @returns {Record<string, any>} @throws {Error} it is not a JWT */
export const claimsOf = (token) => JSON.parse(atob(token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/")));

/**
 * Return how long to wait before the token is to be refreshed, or undefined if it does not expire.
 *
 * A wrong clock must not matter. The token's lifetime (`exp` - `iat`) bounds the answer from above. A token that seems to have expired, although the
 * gateway has just accepted it, counts by its lifetime alone.
 * @param {string | null | undefined} token
 * @param {number} nowMs wall clock
 * @returns {number | undefined} milliseconds, which may be too many for a timer; NaN for an `exp` that is not a number
 */
export function refreshDelayMs(token, nowMs) {
  try {
    const { exp, iat } = claimsOf(token);
    if (!exp) return;
    const left = exp * 1000 - nowMs;
    const life = exp > iat ? (exp - iat) * 1000 : left;
    return Math.max(1000, (left > 0 ? Math.min(left, life) : life) * REFRESH_AT);
  } catch {}
}
