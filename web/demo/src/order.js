/**
 * An order on this page, and the change that an event makes to one. Pure.
 *
 * Most events come from the shop and hold the whole order. Others may publish too (`headgate publish orders.42.shipped
 * '{"carrier": "UPS"}'`): their fields are merged into the known order, and a verb that names a status sets that status.
 *
 * @typedef {"new" | "packed" | "shipped" | "failed"} Status
 * @typedef {{ op: "upsert" | "remove" | "ignore", id: string, attributes: Record<string, any> }} Change
 */

/** @type {Status[]} The columns, left to right. */
export const STATUSES = ["new", "packed", "shipped", "failed"];

/** The defaults of an order that is known from an event only. */
export const UNKNOWN = { status: "new", customer: "Unknown customer", items: 0, carrier: "", total_cents: 0, note: "", scans: 0, by: "" };

/** Longest text of a field, in characters: anybody may publish any text. */
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
  // Only the version still counts: it tells a deletion that was undone since from one that was not.
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
 * Return the next step of an order, or null after the last. `failed` is no step: an order can fail at any, and has an action for it.
 * @param {Record<string, any>} order
 * @returns {Status | null}
 */
export function nextStep(order) {
  const next = neighbour(order, 1);
  return next === "failed" ? null : next;
}

/** @param {Record<string, any>} order @returns {boolean} whether the shop has the order; an order from others' events alone has no version */
export function isOfTheShop({ version }) {
  return version !== undefined;
}

/** @param {number} cents */
export function money(cents) {
  return new Intl.NumberFormat("en", { style: "currency", currency: "EUR" }).format(cents / 100);
}

/** Keep the fields that have a known name and the right type, and drop the rest. @param {any} data */
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
