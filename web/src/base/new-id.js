/** Return a unique id of 128 bits. Others see ids and must not be able to predict the next. */
export function newId() {
  const numbers = new Uint32Array(4);
  // `crypto.randomUUID` is there in secure contexts only.
  return (globalThis.crypto?.getRandomValues(numbers) ?? numbers.map(() => Math.random() * 2 ** 32)).join("-");
}
