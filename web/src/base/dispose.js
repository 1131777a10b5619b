/** The method that `using` calls. Bundlers that compile `using` call the second name if the browser lacks the first. @type {typeof Symbol.dispose} */
export const DISPOSE = Symbol.dispose ?? Symbol.for("Symbol.dispose");
