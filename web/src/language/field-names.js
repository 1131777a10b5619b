/**
 * Field names: snake_case on the wire, camelCase in a page. Pure function.
 *
 * Each notice of the gateway and each of its errors is translated where it comes in, so that the rest of the code knows one style. Values keep their
 * spelling (`catch_up`, `payload_too_large`), and an event's data is the application's: it is never changed.
 */

/** Return a body of the wire with the names of its fields, and of those inside them, in camelCase. @param {any} body @returns {any} */
export function camelCase(body) {
  if (Array.isArray(body)) return body.map(camelCase);
  if (Object(body) !== body) return body;
  return Object.fromEntries(Object.entries(body).map(([name, value]) => [name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase()), camelCase(value)]));
}
