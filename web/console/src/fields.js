/** Labelled fields of forms, and the line in which a form reports its result. */
import { element } from "../../design/element.js";

/**
 * @template {HTMLElement} Input
 * @param {string} label
 * @param {Input} input
 * @param {boolean} [grow] whether it takes the rest of the row
 */
export function field(label, input, grow = false) {
  return element("label", { className: grow ? "field grow" : "field" }, element("span", { text: label }), input);
}

/** @param {[value: string, label: string][]} choices @param {string} [chosen] */
export function select(choices, chosen) {
  return element("select", {}, ...choices.map(([value, text]) => element("option", { value, text, selected: value === chosen })));
}

/** @param {string[]} namespaces */
export const namespaceSelect = (namespaces) => select(namespaces.map((name) => [name, `/${name}`]));

/** A line that screen readers announce when it changes. */
export class Outcome {
  constructor() {
    this.root = element("p", { className: "outcome", role: "status" });
  }

  /** @param {string} text @param {boolean} [isFault] */
  say(text, isFault = false) {
    this.root.className = isFault ? "outcome fault" : "outcome";
    this.root.textContent = text;
  }

  /** Clear a reported fault after a success. */
  well() {
    if (this.root.className === "outcome fault") this.say("");
  }

  /** @param {unknown} error */
  fault(error) {
    this.say(error instanceof Error ? error.message : String(error), true);
  }
}

/** Call a function when a form is submitted, one call at a time. @param {HTMLFormElement} form @param {() => Promise<unknown>} act */
export function onSend(form, act) {
  let busy = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (busy) return;
    busy = true;
    try {
      await act();
    } finally {
      busy = false;
    }
  });
}
