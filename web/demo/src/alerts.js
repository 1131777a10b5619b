/**
 * Alerts: the choice of how to be notified of each type of event: by a toast, in the notification centre only, or not at all.
 *
 * In: clicks on the choices. Out: real subscriptions: "Off" unsubscribes. One handler serves all patterns with toasts, so an event
 * that matches several of them makes one toast.
 *
 * @import { Kind, Preferences, Way } from "./preferences.js"
 */
import { element } from "../../design/element.js";
import { WAYS } from "./preferences.js";

/** So many events of each type are taken from the log when the page opens: the centre is not empty after a reload. */
const PAST = { last: 20 };

export class Alerts {
  /** @type {Map<string, { close: () => void }>} what brings the past of each type that is not off */
  #pasts = new Map();

  /**
   * @param {HTMLElement} root
   * @param {any} gate
   * @param {Preferences} preferences
   * @param {any} list the NotificationList
   * @param {(data: any, event: any) => void} tell called once for each event that gets a toast
   */
  constructor(root, gate, preferences, list, tell) {
    this.gate = gate;
    this.list = list;
    this.tell = tell;
    for (const kind of preferences.kinds) {
      root.append(choice(kind, (way) => {
        preferences.choose(kind, way);
        this.#follow(kind);
      }));
      this.#follow(kind);
    }
  }

  /** @param {Kind} kind */
  #follow({ pattern, way }) {
    if (way !== "off" && !this.#pasts.has(pattern)) this.#pasts.set(pattern, this.gate.subscribe(pattern, { since: PAST }, () => {}));
    this.gate.off(pattern, this.tell);
    if (way === "toast") this.gate.on(pattern, this.tell);
    if (way === "off") this.list.dismiss(pattern);
    else this.list.choose(pattern);
    if (way === "off") {
      this.#pasts.get(pattern)?.close();
      this.#pasts.delete(pattern);
    }
  }
}

/** @param {Kind} kind @param {(way: Way) => void} chosen */
function choice(kind, chosen) {
  const id = `alert-${kind.name}`;
  const segments = WAYS.map(({ way, label }) => {
    const input = element("input", { type: "radio", name: kind.name, value: way, checked: way === kind.way });
    input.addEventListener("change", () => input.checked && chosen(way));
    return element("label", {}, input, element("span", { text: label }));
  });
  return element(
    "div",
    { className: "preference", role: "radiogroup", data: { name: kind.name }, aria: { labelledby: id } },
    element("span", { className: "kind" }, element("span", { id, text: kind.label }), element("code", { text: kind.pattern })),
    element("span", { className: "segments" }, ...segments),
  );
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
  const kind = element("span", { className: "kind" }, element("span", { text: label }), element("code", { text: pattern }));
  return element("label", { className: "switch", data: { name } }, kind, input);
}
