/**
 * Alerts: the switches that say what someone wants to be told about. Each is a real subscription.
 *
 * In: clicks; what was chosen before, per user, from this browser's storage. Out: `gate.on` and `gate.off`; toasts. One
 * handler serves every pattern, so an event that several of them match is told once.
 *
 * @typedef {{ name: string, label: string, pattern: string, chosen: boolean }} Kind
 */
import { element } from "./element.js";

/** @param {string} user @returns {Kind[]} */
function kindsFor(user) {
  return [
    { name: "shipped", label: "Shipped", pattern: "orders.*.shipped", chosen: true },
    { name: "failed", label: "Failed", pattern: "orders.*.failed", chosen: true },
    { name: "created", label: "Created", pattern: "orders.*.created", chosen: true },
    { name: "updated", label: "Updated", pattern: "orders.*.updated", chosen: false },
    { name: "everything", label: "Everything", pattern: "orders.#", chosen: false },
    { name: "personal", label: "For me", pattern: `users.${user}.#`, chosen: true },
  ];
}

export class Alerts {
  #storageKey;
  #kinds;

  /**
   * @param {HTMLElement} root
   * @param {any} gate
   * @param {string} user
   * @param {(data: any, event: any) => void} tell called once for each chosen event
   */
  constructor(root, gate, user, tell) {
    this.gate = gate;
    this.tell = tell;
    this.#storageKey = `headgate-demo alerts ${user}`;
    const stored = this.#stored();
    this.#kinds = kindsFor(user).map((kind) => ({ ...kind, chosen: stored[kind.name] ?? kind.chosen }));
    for (const kind of this.#kinds) {
      root.append(switchFor(kind.name, kind.label, kind.pattern, kind.chosen, (chosen) => this.#choose(kind, chosen)));
      if (kind.chosen) gate.on(kind.pattern, tell);
    }
  }

  /** @param {Kind} kind @param {boolean} chosen */
  #choose(kind, chosen) {
    kind.chosen = chosen;
    if (chosen) this.gate.on(kind.pattern, this.tell);
    else this.gate.off(kind.pattern, this.tell);
    try {
      localStorage.setItem(this.#storageKey, JSON.stringify(Object.fromEntries(this.#kinds.map((k) => [k.name, k.chosen]))));
    } catch {
      // Storage may be full or forbidden; the choice then lasts as long as the page.
    }
  }

  /** @returns {Record<string, boolean>} */
  #stored() {
    try {
      return JSON.parse(localStorage.getItem(this.#storageKey) ?? "{}") ?? {};
    } catch {
      return {};
    }
  }
}

/**
 * Return a labelled switch.
 * @param {string} name
 * @param {string} label
 * @param {string} pattern
 * @param {boolean} checked
 * @param {(checked: boolean) => void} changed
 */
export function switchFor(name, label, pattern, checked, changed) {
  const input = element("input", { type: "checkbox", name, checked });
  input.setAttribute("role", "switch");
  input.addEventListener("change", () => changed(input.checked));
  return element("label", { className: "switch" }, input, element("span", { text: label }), element("code", { text: pattern }));
}
