/**
 * The shop: the demo's HTTP routes, with the token that they and the gateway need.
 *
 * In: calls from the page. Out: parsed answers, or an error with the server's message. Each connection to the gateway gets a new token, and requests
 * share the latest; when the server refuses it, another one is tried once.
 */
export class Shop {
  #token = "";

  /** @param {string} user */
  constructor(user) {
    this.user = user;
  }

  /** @returns {Promise<string>} a new token */
  async signIn() {
    this.#token = (await this.#request("POST", "/demo/session", { user: this.user })).token;
    return this.#token;
  }

  /** @returns {Promise<import("./order.js").Order[]>} */
  orders() {
    return this.#request("GET", "/demo/orders");
  }

  /** Change something, as this user. @param {"POST" | "PUT"} method @param {string} path @param {object} [body] @returns {Promise<any>} */
  async send(method, path, body = {}) {
    if (!this.#token) await this.signIn();
    return this.#request(method, path, body).catch(async (error) => {
      if (error.cause !== 401) throw error;
      await this.signIn();
      return this.#request(method, path, body);
    });
  }

  /** @param {string} method @param {string} path @param {object} [body] @returns {Promise<any>} rejected with the HTTP status as the cause */
  async #request(method, path, body) {
    const headers = { "Content-Type": "application/json", Authorization: `Bearer ${this.#token}` };
    const response = await fetch(path, { method, headers, body: body && JSON.stringify(body), cache: "no-store" }).catch(() => {
      throw new Error("the server cannot be reached");
    });
    const answer = await response.json().catch(() => null);
    if (response.ok) return answer;
    throw new Error(answer?.detail ?? `the server answered ${response.status}`, { cause: response.status });
  }
}
