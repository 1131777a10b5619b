/**
 * Report an error of the application as the browser reports an uncaught one, without stopping anything.
 * @param {unknown} error
 */
export function report(error) {
  (globalThis.reportError ?? console.error)(error);
}
