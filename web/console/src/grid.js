/**
 * A table whose rows change each second. Only cells with a new text are written, so that focus, selection and scroll position stay.
 *
 * In: rows, each with a key. Out: a panel with a heading and the table, or a text that explains why there are no rows; beside it, why they could not be read.
 *
 * @typedef {string | { text: string, tone?: "good" | "warning" | "bad" | "quiet" | "info" } | { buttons: { label: string, name: string, press: () => void }[] }} Cell
 * @typedef {{ label: string, number?: boolean, wide?: boolean }} Column
 * @typedef {{ key: string, cells: Cell[] }} Row
 */
import { element } from "../../design/element.js";
import { Outcome } from "./fields.js";
import { poll } from "./poll.js";

/** @type {Record<string, { className: string }>} */
const STATES = {
  good: { className: "state is-good" },
  warning: { className: "state is-warning" },
  bad: { className: "state is-bad" },
  quiet: { className: "state is-quiet" },
  info: { className: "state is-info" },
};

let nth = 0;

export class Grid {
  /** @type {Map<string, { row: HTMLTableRowElement, cells: HTMLElement[], written: string[] }>} */
  #rows = new Map();

  /** @param {string} title @param {Column[]} columns @param {string} none why there are no rows, and what would bring some */
  constructor(title, columns, none) {
    this.columns = columns;
    this.words = none;
    const id = `panel-${++nth}`;
    const heads = columns.map(({ label, number, wide }) => element("th", { scope: "col", ...look(number, wide), text: label }));
    this.body = element("tbody");
    const table = element("table", { className: "grid" }, element("thead", {}, element("tr", {}, ...heads)), this.body);
    table.setAttribute("aria-labelledby", id);
    this.scroller = element("div", { className: "scroller", tabIndex: 0, aria: { labelledby: id }, role: "group", hidden: true }, table);
    this.outcome = new Outcome();
    this.none = element("p", { className: "none", text: none });
    this.head = element("div", { className: "panel-head" }, element("h2", { id, text: title }));
    this.root = element("section", { className: "panel", aria: { labelledby: id } }, this.head, this.scroller, this.none);
  }

  /** @param {Row[]} rows @param {string} [none] */
  show(rows, none = this.words) {
    this.scroller.hidden = !rows.length;
    this.none.hidden = rows.length > 0;
    if (this.none.textContent !== none) this.none.textContent = none;
    const wanted = new Set(rows.map(({ key }) => key));
    for (const [key, { row }] of this.#rows) {
      if (!wanted.has(key)) {
        row.remove();
        this.#rows.delete(key);
      }
    }
    /** @type {Element | null} */
    let before = this.body.firstElementChild;
    for (const { key, cells } of rows) {
      const known = this.#rows.get(key) ?? this.#make(key);
      if (known.row === before) before = before.nextElementSibling;
      else this.body.insertBefore(known.row, before);
      for (const [at, cell] of cells.entries()) write(known.cells[at], cell, known.written, at);
    }
  }

  /**
   * Read again and again what to show. If that fails, the previous rows stay, and an empty table reports it.
   * @param {number} everyMs @param {string} what @param {() => Promise<any>} read @param {(answer: any) => void} show
   */
  poll(everyMs, what, read, show) {
    const shown = (/** @type {any} */ answer) => {
      this.outcome.well();
      show(answer);
    };
    return poll(everyMs, read, shown, (error) => {
      if (!this.#rows.size) this.show([], `${what} could not be asked for.`);
      this.outcome.fault(error);
    });
  }

  /** @param {string} key */
  #make(key) {
    const cells = this.columns.map(({ number, wide }, at) => (at ? element("td", look(number, wide)) : element("th", { scope: "row", ...look(number, wide) })));
    const made = { row: element("tr", {}, ...cells), cells, written: /** @type {string[]} */ ([]) };
    this.#rows.set(key, made);
    return made;
  }
}

/** @param {boolean | undefined} number @param {boolean | undefined} wide */
const look = (number, wide) => ({ className: number ? "number" : wide ? "wide" : "" });

/** @param {HTMLElement} target @param {Cell} cell @param {string[]} written @param {number} at */
function write(target, cell, written, at) {
  if (typeof cell === "string") {
    if (written[at] === cell) return;
    written[at] = cell;
    target.textContent = cell;
  } else if ("buttons" in cell) {
    // A button keeps its place and its focus. It acts on the row for which it was made, which has the same key.
    const names = cell.buttons.map(({ name }) => name).join("\n");
    if (written[at] === names) return;
    written[at] = names;
    target.replaceChildren(
      element("span", { className: "row" }, ...cell.buttons.map(({ label, name, press }) => element("button", { type: "button", className: "button small", text: label, onclick: press, aria: { label: name } }))),
    );
  } else {
    const { text, tone = "quiet" } = cell;
    if (written[at] === `${tone} ${text}`) return;
    written[at] = `${tone} ${text}`;
    target.replaceChildren(element("span", { ...STATES[tone], text }));
  }
}
