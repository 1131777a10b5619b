/** Tokens as an application's own server makes them: signed JWTs with grants. */
import { createHmac } from "node:crypto";

export const SECRET = "a secret of thirty-two bytes or more, for tests";

/** @param {string} user @param {{ subscribe?: string[], publish?: string[] }} [grants] */
export function token(user, { subscribe = [], publish = [] } = {}) {
  const now = Date.now() / 1000;
  const claims = { sub: user, aud: "headgate", iat: now, exp: now + 600, subscribe, publish };
  const text = [{ alg: "HS256", typ: "JWT" }, claims].map((part) => Buffer.from(JSON.stringify(part)).toString("base64url")).join(".");
  return `${text}.${createHmac("sha256", SECRET).update(text).digest("base64url")}`;
}
