/**
 * Field names: snake_case on the wire, camelCase in a page. Pure function.
 *
 * Each notice and error of the gateway is translated when it arrives, so the rest of the code has one style. Values keep their spelling (`catch_up`,
 * `payload_too_large`). The data of an event belongs to the application and is never changed.
 */

/** Return a body of the wire with all names of fields, also nested ones, in camelCase. @param {any} body @returns {any} */
export function camelCase(body) {
  if (Array.isArray(body)) return body.map(camelCase);
  if (Object(body) !== body) return body;
  return Object.fromEntries(Object.entries(body).map(([name, value]) => [name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase()), camelCase(value)]));
}
