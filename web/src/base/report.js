/**
 * Report an error of the application's the way the browser reports an uncaught one, without stopping anything.
 * @param {unknown} error
 */
export function report(error) {
  (globalThis.reportError ?? console.error)(error);
}
