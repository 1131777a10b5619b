/** Return a unique id of 128 bits. Other users see ids and must not be able to predict the next one. */
export function newId() {
  const numbers = new Uint32Array(4);
  // `crypto.randomUUID` exists only in secure contexts.
  return (globalThis.crypto?.getRandomValues(numbers) ?? numbers.map(() => Math.random() * 2 ** 32)).join("-");
}
