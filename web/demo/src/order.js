/**
 * What an order is on this page, and what an event says about one. Pure.
 *
 * Most events come from the shop and hold the whole order. Others may publish too (`headgate publish orders.42.shipped
 * '{"carrier": "UPS"}'`): what they say is merged into what is known, and a verb that names a status counts as that status.
 *
 * @typedef {"new" | "packed" | "shipped" | "failed"} Status
 * @typedef {{ op: "upsert" | "remove" | "ignore", id: string, attributes: Record<string, any> }} Change
 */

/** @type {Status[]} The columns, left to right. */
export const STATUSES = ["new", "packed", "shipped", "failed"];

/** An order that only an event has told of starts from here. */
export const UNKNOWN = { status: "new", customer: "Unknown customer", items: 0, carrier: "", total_cents: 0, note: "", scans: 0, by: "" };

/** Text from an event is somebody else's: what is shown of a field is bounded, in characters. */
const MAX_TEXT = 140;

/**
 * Read a topic `orders.<id>.<verb>` and its data.
 * @param {string} topic
 * @param {any} data
 * @returns {Change}
 */
export function changeOf(topic, data) {
  const [, id = "", verb = "", ...rest] = topic.split(".");
  if (!verb || rest.length) return { op: "ignore", id, attributes: {} };
  const attributes = knownFields(data);
  // Of the rest nothing counts any more; the version tells a deletion that has been undone by now from one that has not.
  if (verb === "deleted") return { op: "remove", id, attributes: "version" in attributes ? { version: attributes.version } : {} };
  if (!("status" in attributes) && isStatus(verb)) attributes.status = verb;
  attributes.by ??= "outside";
  return { op: "upsert", id, attributes };
}

/** @param {any} value @returns {value is Status} */
export function isStatus(value) {
  return STATUSES.includes(value);
}

/** @param {Record<string, any>} order @param {-1 | 1} step @returns {Status | null} the column beside the order's own */
export function neighbour(order, step) {
  return STATUSES[STATUSES.indexOf(order.status) + step] ?? null;
}

/**
 * Return the next step on an order's way, or null at its end. Failed is no step on it: it can happen at any, and has an action of its own.
 * @param {Record<string, any>} order
 * @returns {Status | null}
 */
export function nextStep(order) {
  const next = neighbour(order, 1);
  return next === "failed" ? null : next;
}

/** @param {Record<string, any>} order @returns {boolean} whether the shop has it; one that only others' events tell of has no version */
export function isOfTheShop({ version }) {
  return version !== undefined;
}

/** @param {number} cents */
export function money(cents) {
  return new Intl.NumberFormat("en", { style: "currency", currency: "EUR" }).format(cents / 100);
}

/** Keep what has a known name and its type; everything else in the data is nobody's business here. @param {any} data */
function knownFields(data) {
  /** @type {Record<string, any>} */
  const fields = {};
  if (data === null || typeof data !== "object") return fields;
  for (const name of ["customer", "carrier", "note", "by"]) {
    if (Object.hasOwn(data, name) && typeof data[name] === "string") fields[name] = data[name].slice(0, MAX_TEXT);
  }
  for (const name of ["items", "total_cents", "scans", "version"]) {
    if (Object.hasOwn(data, name) && Number.isFinite(data[name])) fields[name] = data[name];
  }
  if (Object.hasOwn(data, "status") && isStatus(data.status)) fields.status = data.status;
  return fields;
}
