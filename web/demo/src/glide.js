/**
 * Gliding: what a change of the board pushes aside moves there, and does not jump.
 *
 * In: the parts that may move, and the change. Out: for each part that is elsewhere afterwards, an animation from where it was. It is a
 * transform, from the very frame of the change on, so that no frame shows a jump. A reader who asks for less motion gets none.
 */

const DURATION_MS = 180;
const LESS_MOTION = matchMedia("(prefers-reduced-motion: reduce)");
/** A part that is out of sight by more than this many windows is left alone, and so is a board with more parts: measuring takes time. */
const NEAR = 1;
const MAX_PARTS = 120;
/** @type {Map<HTMLElement, Animation>} those that are under way */
const gliding = new Map();

/**
 * Make a change, and let the parts that it moves glide. Parts are listed before the parts within them.
 * @param {() => HTMLElement[]} parts @param {() => void} change
 */
export function glide(parts, change) {
  const before = LESS_MOTION.matches || document.hidden ? [] : parts();
  if (!before.length || before.length > MAX_PARTS) {
    change();
    return;
  }
  const places = before.map((part) => ({ part, from: part.getBoundingClientRect() }));
  change();
  for (const animation of gliding.values()) animation.cancel(); // the new ones go on from where these were
  gliding.clear();
  /** @type {Map<HTMLElement, { x: number, y: number }>} how far each part is moved, that it carries along what is within it */
  const moved = new Map();
  for (const { part, from } of places) {
    const to = part.getBoundingClientRect();
    const carried = carriedBy(part, moved);
    const [x, y] = [from.left - to.left, from.top - to.top];
    moved.set(part, { x, y });
    if (!part.isConnected || (x === carried.x && y === carried.y)) continue;
    if (Math.min(from.top, to.top) > innerHeight * (1 + NEAR) || Math.max(from.bottom, to.bottom) < -innerHeight * NEAR) continue;
    const path = [{ transform: `translate(${x - carried.x}px, ${y - carried.y}px)` }, { transform: "none" }];
    const animation = part.animate(path, { duration: DURATION_MS, easing: "ease-out" });
    gliding.set(part, animation);
    animation.onfinish = () => gliding.delete(part);
  }
}

/** @param {HTMLElement} part @param {Map<HTMLElement, { x: number, y: number }>} moved @returns {{ x: number, y: number }} */
function carriedBy(part, moved) {
  for (let around = part.parentElement; around; around = around.parentElement) {
    const found = moved.get(around);
    if (found) return found;
  }
  return { x: 0, y: 0 };
}
