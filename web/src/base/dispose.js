/** The method that `using` calls. Bundlers that compile `using` look for the second name where a browser lacks the first. @type {typeof Symbol.dispose} */
export const DISPOSE = Symbol.dispose ?? Symbol.for("Symbol.dispose");
