/** Return a source of numbers below a bound, the same for the same seed (Park and Miller 1988). @param {number} seed @returns {(below: number) => number} */
export function drawer(seed) {
  let state = seed * 7919;
  return (below) => {
    state = (state * 48_271) % 2_147_483_647;
    return state % below;
  };
}
