/**
 * Preferences: how a user wants to be notified of each type of event. Pure, except for the storage that the caller passes.
 *
 * In: the stored value of this user, which may be anything. Out: the types, each with a valid way. Each user has a value of their
 * own, because the demo's two users share a browser.
 *
 * @typedef {"toast" | "centre" | "off"} Way
 * @typedef {{ name: string, label: string, pattern: string, way: Way }} Kind
 */

/** @type {{ way: Way, label: string }[]} */
export const WAYS = [
  { way: "toast", label: "Toast" },
  { way: "centre", label: "Centre" },
  { way: "off", label: "Off" },
];

/** @param {string} user @returns {Kind[]} every type with its default way */
export function kindsFor(user) {
  return [
    { name: "shipped", label: "Shipped", pattern: "orders.*.shipped", way: "toast" },
    { name: "failed", label: "Failed", pattern: "orders.*.failed", way: "toast" },
    { name: "created", label: "Created", pattern: "orders.*.created", way: "toast" },
    { name: "updated", label: "Updated", pattern: "orders.*.updated", way: "off" },
    { name: "everything", label: "Everything", pattern: "orders.#", way: "off" },
    { name: "personal", label: "For me", pattern: `users.${user}.#`, way: "toast" },
  ];
}

/** @param {unknown} value @returns {value is Way} */
export function isWay(value) {
  return WAYS.some(({ way }) => way === value);
}

export class Preferences {
  #key;
  #storage;

  /** @param {string} user @param {() => Pick<Storage, "getItem" | "setItem">} storage may throw, as `localStorage` does where the browser forbids it */
  constructor(user, storage) {
    this.#key = `headgate-demo preferences ${user}`;
    this.#storage = storage;
    const stored = this.#stored();
    this.kinds = kindsFor(user).map((kind) => {
      const way = Object.hasOwn(stored, kind.name) ? stored[kind.name] : undefined;
      return isWay(way) ? { ...kind, way } : kind;
    });
  }

  /** Remember a choice. @param {Kind} kind @param {Way} way */
  choose(kind, way) {
    kind.way = way;
    try {
      this.#storage().setItem(this.#key, JSON.stringify(Object.fromEntries(this.kinds.map((each) => [each.name, each.way]))));
    } catch {
      // Storage may be full or forbidden; the choice then lasts as long as the page.
    }
  }

  /** @returns {Record<string, unknown>} */
  #stored() {
    try {
      const stored = JSON.parse(this.#storage().getItem(this.#key) ?? "{}");
      return stored !== null && typeof stored === "object" ? stored : {};
    } catch {
      return {};
    }
  }
}
