/** Return an id that nobody else has, 128 bits: others see ids, and must not foretell the next. */
export function newId() {
  const numbers = new Uint32Array(4);
  // `crypto.randomUUID` is there in secure contexts only.
  return (globalThis.crypto?.getRandomValues(numbers) ?? numbers.map(() => Math.random() * 2 ** 32)).join("-");
}
