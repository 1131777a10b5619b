/** The server's data about this page, from the attributes of its body, and requests to the console's own routes. */

/** A header that each action must send. No form can send it, and no other site may. */
const ACTION_HEADER = "X-Headgate-Console";

const said = document.body.dataset;

export const page = {
  view: said.view ?? "",
  mayAct: said.may === "act",
  byKey: said.byKey === "true",
  /** @type {string[]} */
  namespaces: JSON.parse(said.namespaces ?? "[]"),
  /** @type {{ log_max_age_s: number }} */
  limits: JSON.parse(said.limits ?? "{}"),
  traceEvery: Number(said.traceEvery),
};

/** A refusal of the server. `code` is of docs/protocol.md, or `unreachable`. */
export class Refused extends Error {
  /** @param {string} code @param {string} message */
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** Send a GET request. @param {string} path @param {Record<string, string | null | undefined>} [query] @returns {Promise<any>} rejected with Refused */
export function read(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const asked = new URLSearchParams(/** @type {[string, string][]} */ (given)).toString();
  return ask(`/console/${path}${asked && `?${asked}`}`, {});
}

/** Send a request for an action. @param {string} path @param {object} body @returns {Promise<any>} rejected with Refused */
export function act(path, body) {
  const headers = { "Content-Type": "application/json", [ACTION_HEADER]: "1" };
  return ask(`/console/api/${path}`, { method: "POST", headers, body: JSON.stringify(body) });
}

/** @param {string} address @param {RequestInit} options @returns {Promise<any>} */
async function ask(address, options) {
  let response;
  let body;
  try {
    response = await fetch(address, { ...options, credentials: "same-origin" });
    body = await response.json();
  } catch {
    throw new Refused("unreachable", "The gateway does not answer.");
  }
  if (response.status === 401) location.assign("/console");
  if (!response.ok) throw new Refused(body.code ?? "unreachable", sentence(body.detail ?? `The gateway answered ${response.status}.`));
  return body;
}

/** @param {string} text */
function sentence(text) {
  const whole = text.slice(0, 1).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}
