/** Return a value of any kind as a short text. @param {unknown} value */
export function asText(value) {
  try {
    return String(value).slice(0, 80);
  } catch {
    // An object without a text, such as `Object.create(null)`.
    return typeof value;
  }
}
