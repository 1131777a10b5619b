/**
 * Gliding: parts that a change of the board pushes aside move to their new places and do not jump. Nothing moves for readers who ask for less motion.
 *
 * In: the parts that may move, and the change. Out: for each moved part, an animation from where it was to where it is.
 */
const DURATION_MS = 180;
const LESS_MOTION = matchMedia("(prefers-reduced-motion: reduce)");
/** A board with more parts is left alone: measuring takes time. */
const MAX_PARTS = 120;

/** Parts are listed before the parts within them. @param {() => HTMLElement[]} parts @param {() => void} change */
export function glide(parts, change) {
  const moving = LESS_MOTION.matches || document.hidden ? [] : parts();
  const before = moving.length > MAX_PARTS ? [] : moving.map((part) => ({ part, from: part.getBoundingClientRect() }));
  change();
  /** @type {Map<Element | null, { x: number, y: number }>} how far each part has moved, with everything inside it */
  const moved = new Map();
  for (const { part } of before) for (const animation of part.getAnimations()) animation.cancel();
  for (const { part, from } of before) {
    const to = part.getBoundingClientRect();
    const [x, y] = [from.left - to.left, from.top - to.top];
    const carried = moved.get(part.parentElement?.closest(".column") ?? null) ?? { x: 0, y: 0 };
    moved.set(part, { x, y });
    if (!part.isConnected || (x === carried.x && y === carried.y)) continue;
    part.animate([{ transform: `translate(${x - carried.x}px, ${y - carried.y}px)` }, {}], { duration: DURATION_MS, easing: "ease-out" });
  }
}
