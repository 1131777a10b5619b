/**
 * Gliding: what a change of the board or of the toasts pushes aside moves there, and does not jump.
 *
 * In: the parts that may move, and the change. Out: for each part that is elsewhere afterwards, a transform that leads from where it was to
 * where it is, from the very frame of the change on, so that no frame shows a jump. A reader who asks for less motion gets none.
 *
 * The transform is written frame by frame. Keyframes with a transform are moved along by the browser's compositor, and a part that a second
 * change moves on its way then counts as a shift of the layout: the browser compares with where the part was before the first. The
 * animation of each part has no keyframes, and tells the time alone.
 */

const DURATION_MS = 180;
const LESS_MOTION = matchMedia("(prefers-reduced-motion: reduce)");
/** A part that is out of sight by more than this many windows is left alone, and so is a board with more parts: measuring takes time. */
const NEAR = 1;
const MAX_PARTS = 120;
/** @type {Map<HTMLElement, { clock: Animation, x: number, y: number }>} those that are under way, and how far each had to go */
const gliding = new Map();
/** Whether the next frame is asked for. */
let isStepping = false;

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
  for (const { part } of places) stop(part); // it goes on from where it was
  /** @type {Map<HTMLElement, { x: number, y: number }>} how far each part is moved, that it carries along what is within it */
  const moved = new Map();
  const targets = places.map(({ part }) => part.getBoundingClientRect());
  for (const [index, { part, from }] of places.entries()) {
    const to = targets[index];
    const carried = carriedBy(part, moved);
    const [x, y] = [from.left - to.left, from.top - to.top];
    moved.set(part, { x, y });
    if (!part.isConnected || !to.width || (x === carried.x && y === carried.y)) continue;
    if (Math.min(from.top, to.top) > innerHeight * (1 + NEAR) || Math.max(from.bottom, to.bottom) < -innerHeight * NEAR) continue;
    start(part, x - carried.x, y - carried.y);
  }
}

/** @param {HTMLElement} part @param {number} x @param {number} y */
function start(part, x, y) {
  part.style.transform = `translate(${x}px, ${y}px)`;
  if (!isStepping) requestAnimationFrame(step);
  isStepping = true;
  gliding.set(part, { clock: part.animate([], { duration: DURATION_MS, easing: "ease-out" }), x, y });
}

/** Bring every part on its way to where it is in this frame. */
function step() {
  for (const [part, { clock, x, y }] of gliding) {
    const progress = clock.effect?.getComputedTiming().progress;
    if (typeof progress === "number" && progress < 1) part.style.transform = `translate(${x * (1 - progress)}px, ${y * (1 - progress)}px)`;
    else stop(part);
  }
  isStepping = gliding.size > 0;
  if (isStepping) requestAnimationFrame(step);
}

/** @param {HTMLElement} part */
function stop(part) {
  const found = gliding.get(part);
  if (!found) return;
  found.clock.cancel();
  gliding.delete(part);
  part.style.transform = "";
}

/** @param {HTMLElement} part @param {Map<HTMLElement, { x: number, y: number }>} moved @returns {{ x: number, y: number }} */
function carriedBy(part, moved) {
  for (let around = part.parentElement; around; around = around.parentElement) {
    const found = moved.get(around);
    if (found) return found;
  }
  return { x: 0, y: 0 };
}
