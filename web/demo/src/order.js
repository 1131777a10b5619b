/**
 * An order on this page, and the change that an event makes to one. Pure.
 *
 * Most events come from the shop and hold the whole order. Others may publish too (`headgate publish orders.42.shipped '{"by": "ben"}'`):
 * their fields are merged into the known order, and a verb that names a status sets that status.
 *
 * @typedef {{ id: string, status: string, customer: string, total_cents: number, by: string, version?: number }} Order
 * @typedef {{ op: "upsert" | "remove" | "ignore", id: string, fields: Partial<Order> }} Change
 */

/** The columns, left to right. */
export const STATUSES = ["new", "packed", "shipped", "failed"];

/** The fields of an order that is known only from an event. */
const UNKNOWN = { status: "new", customer: "Unknown customer", total_cents: 0, by: "" };
/** Longest text of a field, in characters, because other programs may publish any text. */
const MAX_TEXT = 140;

/** Read a topic `orders.<id>.<verb>` and its data. @param {string} topic @param {any} data @returns {Change} */
export function changeOf(topic, data) {
  const [, id = "", verb = "", ...rest] = topic.split(".");
  if (!verb || rest.length) return { op: "ignore", id, fields: {} };
  const fields = knownFields(data);
  if (verb === "deleted") return { op: "remove", id, fields };
  if (!fields.status && STATUSES.includes(verb)) fields.status = verb;
  fields.by ??= "outside";
  return { op: "upsert", id, fields };
}

/** Return the order after a change, or the same order if the change is older. @param {Order | undefined} order @param {Change} change @returns {Order} */
export function merged(order, { id, fields }) {
  if (order?.version !== undefined && fields.version !== undefined && fields.version <= order.version) return order;
  return { ...UNKNOWN, ...order, ...fields, id };
}

/** @param {number} cents */
export function money(cents) {
  return new Intl.NumberFormat("en", { style: "currency", currency: "EUR" }).format(cents / 100);
}

/** Keep the fields with a known name and the right type, and drop the rest. @param {any} data @returns {Partial<Order>} */
function knownFields(data) {
  /** @type {Record<string, any>} */
  const fields = {};
  if (data === null || typeof data !== "object") return fields;
  for (const name of ["customer", "by"]) {
    if (Object.hasOwn(data, name) && typeof data[name] === "string") fields[name] = data[name].slice(0, MAX_TEXT);
  }
  for (const name of ["total_cents", "version"]) {
    if (Object.hasOwn(data, name) && Number.isFinite(data[name])) fields[name] = data[name];
  }
  if (Object.hasOwn(data, "status") && STATUSES.includes(data.status)) fields.status = data.status;
  return fields;
}
