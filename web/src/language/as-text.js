/** Return any value as a text. @param {unknown} value */
export function asText(value) {
  try {
    return String(value);
  } catch {
    // An object without a text, such as `Object.create(null)`.
    return typeof value;
  }
}
