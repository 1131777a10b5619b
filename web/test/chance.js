/** Chance that can be repeated: every history of a model is one seed. */

/** Return numbers from 0 to below 1 (mulberry32). @param {number} seed */
export function randomFrom(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Return a function that returns a whole number from 0 to below its argument. @param {number} seed */
export function belowFrom(seed) {
  const random = randomFrom(seed);
  return (/** @type {number} */ most) => Math.floor(random() * most);
}
