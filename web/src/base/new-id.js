/** Return an id that nobody else has: 32 hexadecimal digits. */
export function newId() {
  const bytes = new Uint8Array(16);
  // `crypto.randomUUID` is there in secure contexts only.
  const random = globalThis.crypto?.getRandomValues(bytes) ?? bytes.map(() => Math.random() * 256);
  return Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
