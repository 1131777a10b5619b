/**
 * The shop: the demo's HTTP routes, with the token that they and the gateway need.
 *
 * In: calls from the page. Out: parsed answers, or a ShopError with the server's message. Each connection to the gateway gets a new token, because the server behind it may be a new
 * process. Requests share one token; the shop renews it before it expires, or when the server refuses it.
 *
 * @typedef {{ code: string, detail: string, retry?: boolean, current?: Record<string, any> }} Refusal
 */

/** Renew the token this long before it expires, so that it does not expire during a request. */
const RENEW_BEFORE_MS = 60_000;

export class ShopError extends Error {
  /** @param {number} status HTTP status; 0 without an answer @param {Refusal} refusal */
  constructor(status, refusal) {
    super(refusal.detail);
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

  /** @returns {Promise<string>} a new token */
  async signIn() {
    const session = request("POST", "/demo/session", { user: this.user }).then(({ token, expires_in_s }) => ({
      token,
      renewAtMs: performance.now() + expires_in_s * 1000 - RENEW_BEFORE_MS,
    }));
    this.#session = session;
    session.catch(() => {
      if (this.#session === session) this.#session = null;
    });
    return (await session).token;
  }

  /** @returns {Promise<string>} a token that is valid for another minute at least */
  async #token() {
    const held = await this.#session;
    return held && held.renewAtMs > performance.now() ? held.token : this.signIn();
  }

  /** @param {string} path @returns {Promise<any>} */
  get(path) {
    return request("GET", path);
  }

  /** Change something, as this user. @param {"POST" | "PUT" | "DELETE"} method @param {string} path @param {object} [body] @returns {Promise<any>} */
  async send(method, path, body) {
    try {
      return await request(method, path, body, await this.#token());
    } catch (error) {
      if (!(error instanceof ShopError) || error.status !== 401) throw error;
      this.#session = null;
      return request(method, path, body, await this.#token());
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
    throw new ShopError(0, { code: "unreachable", detail: "the server cannot be reached", retry: true });
  }
  const answer = response.status === 204 ? null : await response.json().catch(() => null);
  if (response.ok) return answer;
  throw new ShopError(response.status, answer?.code ? answer : { code: "error", detail: `the server answered ${response.status}` });
}
