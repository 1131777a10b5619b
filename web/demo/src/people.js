/**
 * The other people at the board (`headgate/presence`), and their pointers.
 *
 * In: the room of one pane's gate, this user's pointer. Out: their names in the pane's head, and an arrow for each pointer. A pointer moves up to
 * 60 times a second, of which its room sends the last place. Places are fractions of the board, whose cards have the same order everywhere.
 */
import { presence } from "headgate/presence";
import { element } from "../../design/element.js";

const TOPIC = "orders.people";

/** @param {any} gate @param {string} me @param {HTMLElement} board @param {HTMLElement} peers @param {(user: string) => string} nameOf */
export function showPeople(gate, me, board, peers, nameOf) {
  const room = presence(gate, TOPIC);
  /** @type {Map<string, HTMLElement>} */
  const arrows = new Map();
  board.addEventListener("pointermove", ({ clientX, clientY }) => {
    const { left, top, width, height } = board.getBoundingClientRect();
    room.update({ x: Number(((clientX - left) / width).toFixed(4)), y: Number(((clientY - top) / height).toFixed(4)) });
  });
  board.addEventListener("pointerleave", () => room.update(null));
  room.subscribe(() => {
    const others = room.members.filter(({ user }) => user !== me);
    peers.textContent = others.map(({ user }) => `${nameOf(user)} is here`).join(", ");
    for (const [user, arrow] of arrows) if (!others.some((each) => each.user === user && placeOf(each.meta))) arrow.remove();
    for (const { user, meta } of others) {
      const place = placeOf(meta);
      if (!place) continue;
      const arrow = arrows.get(user) ?? element("div", { className: "pointer", data: { user }, aria: { hidden: "true" } }, element("span", { text: nameOf(user) }));
      arrows.set(user, arrow);
      if (!arrow.isConnected) board.append(arrow);
      arrow.style.left = `${place.x * 100}%`;
      arrow.style.top = `${place.y * 100}%`;
    }
  });
}

/** Read the pointer of another page, which may send anything. @param {any} meta @returns {{ x: number, y: number } | undefined} */
export function placeOf(meta) {
  const is = (/** @type {any} */ value) => typeof value === "number" && value >= 0 && value <= 1;
  return is(meta?.x) && is(meta?.y) ? { x: meta.x, y: meta.y } : undefined;
}
