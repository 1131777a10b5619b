/**
 * The shop: the demo's HTTP routes, with the token that they and the gateway want.
 *
 * In: calls from the page. Out: parsed answers, or a ShopError with the server's words. A token is asked for once and
 * renewed before it expires, or when the server no longer knows it (it forgets its secret when it restarts).
 *
 * @typedef {{ code: string, message: string, retry?: boolean, current?: Record<string, any> }} Refusal
 */

/** Renew this long before the end, so that no request carries a token that expires on the way. */
const RENEW_BEFORE_MS = 60_000;

export class ShopError extends Error {
  /** @param {number} status 0: the server was not reached @param {Refusal} refusal */
  constructor(status, refusal) {
    super(refusal.message);
    this.name = "ShopError";
    this.status = status;
    this.refusal = refusal;
  }
}

export class Shop {
  /** @type {Promise<{ token: string, renewAtMs: number }> | null} */
  #session = null;

  /** @param {string} user */
  constructor(user) {
    this.user = user;
  }

  /** Return a token that is valid for at least another minute. */
  async token() {
    const held = await this.#session;
    const session = held && held.renewAtMs > performance.now() ? Promise.resolve(held) : this.#open();
    this.#session = session;
    try {
      return (await session).token;
    } catch (error) {
      if (this.#session === session) this.#session = null;
      throw error;
    }
  }

  /** @returns {Promise<Record<string, any>[]>} */
  orders() {
    return request("GET", "/demo/orders");
  }

  create() {
    return this.#signed("POST", "/demo/orders");
  }

  /** @param {string} id @param {Record<string, any>} fields with the `version` that was seen */
  change(id, fields) {
    return this.#signed("PUT", `/demo/orders/${encodeURIComponent(id)}`, fields);
  }

  /** @param {string} id @param {number} version */
  remove(id, version) {
    return this.#signed("DELETE", `/demo/orders/${encodeURIComponent(id)}`, { version });
  }

  /** @param {{ id: string, events: number, over_s: number }} asked answered when it is over, or, with `over_s`, when it has begun */
  burst(asked) {
    return this.#signed("POST", "/demo/burst", asked);
  }

  /** @param {string} id @returns {Promise<{ published: number, done: boolean, error: string }>} */
  burstRecord(id) {
    return request("GET", `/demo/burst/${encodeURIComponent(id)}`);
  }

  async #open() {
    const { token, expires_in_s } = await request("POST", "/demo/session", { user: this.user });
    return { token, renewAtMs: performance.now() + expires_in_s * 1000 - RENEW_BEFORE_MS };
  }

  /** @param {string} method @param {string} path @param {object} [body] */
  async #signed(method, path, body) {
    try {
      return await request(method, path, body, await this.token());
    } catch (error) {
      if (!(error instanceof ShopError) || error.status !== 401) throw error;
      this.#session = null;
      return request(method, path, body, await this.token());
    }
  }
}

/**
 * @param {string} method
 * @param {string} path
 * @param {object} [body]
 * @param {string} [token]
 * @returns {Promise<any>}
 */
async function request(method, path, body, token) {
  /** @type {Record<string, string>} */
  const headers = {};
  if (body) headers["Content-Type"] = "application/json";
  if (token) headers.Authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(path, { method, headers, body: body && JSON.stringify(body), cache: "no-store" });
  } catch {
    throw new ShopError(0, { code: "unreachable", message: "the server cannot be reached", retry: true });
  }
  const answer = response.status === 204 ? null : await response.json().catch(() => null);
  if (response.ok) return answer;
  throw new ShopError(response.status, answer?.error ?? { code: "error", message: `the server answered ${response.status}` });
}
