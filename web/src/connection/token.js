/**
 * Tokens: where the present one comes from, and when the next is due. Nothing is verified here: the gateway does that.
 *
 * @typedef {string | null | undefined | (() => string | null | undefined | Promise<string | null | undefined>)} TokenSource
 */
import { HeadgateError } from "../language/errors.js";
import { checkRule } from "../language/options.js";
import { MAX_DELAY_MS } from "../base/timer.js";

/** Share of a token's life after which it is refreshed; the rest is for retries. */
const REFRESH_AT = 0.8;

/**
 * The tokens of one client. One that the application gave (`replace`) goes before the source, until the gateway
 * refuses it or it is due for a refresh that the source can bring.
 * @param {TokenSource} source
 */
export function createTokens(source) {
  const asks = typeof source === "function";
  /** undefined: none. @type {string | null | undefined} */
  let given;

  /** Return the source's token. An error of the source becomes `token_unavailable`. */
  async function ask() {
    try {
      const token = await (asks ? source() : source);
      checkRule("token", "string null", token);
      return token;
    } catch (error) {
      throw new HeadgateError("token_unavailable", { reason: error }, true, undefined, error);
    }
  }

  const current = async () => (given === undefined ? ask() : given);

  return {
    /** Whether the source can bring another token by itself: it is a function. */
    asks,

    /** Return the token for a CONNECT. @returns {Promise<string | null | undefined>} rejected with `token_unavailable` */
    current,

    /** Return the token for a refresh: the source's, if it is asked. @returns {Promise<string | null | undefined>} rejected as above */
    next: asks ? ask : current,

    /** The application gave this token: it goes before the source. @param {string | null | undefined} token */
    replace(token) {
      given = token;
    },

    /** The source's own token is in use. */
    restore() {
      if (asks) given = undefined;
    },

    /** The gateway refused the token that was shown. Return whether there may be another. @param {boolean} isExpired why it was refused */
    refused(isExpired) {
      const another = (asks && isExpired) || given !== undefined;
      given = undefined;
      return another;
    },
  };
}

/** Return the claims of a JWT. @param {string | null | undefined} token @returns {Record<string, any>} @throws {Error} it is none */
export const claimsOf = (token) => JSON.parse(atob(String(token).split(".")[1].replaceAll("-", "+").replaceAll("_", "/")));

/**
 * Return how long to wait before the token is to be refreshed, or null when it has no expiry.
 *
 * A wrong clock must not matter: the token's whole life (`exp` - `iat`) bounds the answer from above, and a token that
 * looks expired already, though the gateway has just accepted it, is judged by its whole life alone.
 * @param {string | null | undefined} token
 * @param {number} nowMs wall clock
 * @returns {number | null} milliseconds; NaN for an `exp` that is no number
 */
export function refreshDelayMs(token, nowMs) {
  try {
    const { exp, iat } = claimsOf(token);
    if (!exp) return null;
    const left = exp * 1000 - nowMs;
    const life = exp > iat ? (exp - iat) * 1000 : left;
    return Math.min(MAX_DELAY_MS, Math.max(1000, (left > 0 ? Math.min(left, life) : life) * REFRESH_AT));
  } catch {
    return null;
  }
}
