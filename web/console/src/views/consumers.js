/** Consumers: the lag of each, and the letters that one has given up, with reasons and buttons to try them again or drop them. */
import { element } from "../../../design/element.js";
import { Outcome } from "../fields.js";
import { count, counted, duration } from "../format.js";
import { Grid } from "../grid.js";
import { act, page, read } from "../page.js";
import { tree } from "../tree.js";

const ASK_MS = 3000;
const WHY = /** @type {Record<string, string>} */ ({ unreadable: "cannot be read", poison: "made its process fail", rejected: "will never work", gave_up: "tried for too long", outcome_unknown: "may have worked" });

export function consumers() {
  const grid = new Grid(
    "Consumers",
    [{ label: "Consumer" }, { label: "State" }, { label: "Behind", number: true }, { label: "At work", number: true }, { label: "Waiting", number: true }, { label: "Dead letters", number: true }, { label: "Missed", number: true }, { label: "Seen", number: true }, { label: "More" }],
    "There are no consumers. The command headgate consume starts those of headgate.toml: mail, webhooks, monitoring, your own.",
  );
  const letters = element("div");
  const outcome = new Outcome();
  const root = element("div", { className: "stack" }, grid.root, grid.outcome.root, element("div", { className: "stack" }, outcome.root, letters));
  /** @type {{ name: string, namespace: string } | null} */
  let chosen = null;

  const polling = grid.poll(ASK_MS, "The consumers", () => read("api/consumers"), (answer) => {
    grid.show(answer.consumers.map((/** @type {any} */ each) => row(each, open)));
  });

  /** @param {{ name: string, namespace: string }} consumer */
  async function open(consumer) {
    chosen = consumer;
    outcome.say("");
    try {
      const told = await read("api/letters", { consumer: consumer.name, namespace: consumer.namespace });
      letters.replaceChildren(panel(consumer, told));
      letters.querySelector("h2")?.focus();
    } catch (error) {
      outcome.fault(error);
    }
  }

  /** @param {{ name: string, namespace: string }} consumer @param {any} told */
  function panel(consumer, told) {
    const items = told.letters.map((/** @type {any} */ letter) => {
      const check = element("input", { type: "checkbox", value: letter.id, aria: { label: `Letter of ${letter.topic || "an unreadable event"}, offset ${letter.offset}` } });
      const title = element("strong", { text: letter.topic || "an unreadable entry" });
      const about = element("p", { className: "note", text: `${new Date(letter.at).toLocaleString()}, offset ${count(letter.offset)}: ${WHY[letter.why] ?? letter.why}${letter.reason ? `. ${letter.reason}` : ""}` });
      return element("li", { className: "letter" }, ...(page.mayAct ? [check] : []), element("div", {}, title, about, element("details", {}, element("summary", { text: "Data" }), element("div", { className: "tree" }, tree(parsed(letter.data))))));
    });
    const list = element("ul", { className: "letters", role: "list" }, ...items);
    const buttons = ["retry", "discard"].map((path) =>
      element("button", { type: "button", className: "button small", text: path === "retry" ? "Try again" : "Discard for good", onclick: () => change(consumer, list, path) }),
    );
    const all = element("button", { type: "button", className: "button small", text: "Choose all", onclick: () => setAll(list) });
    return element(
      "section",
      { className: "panel", aria: { labelledby: "letters-title" } },
      element("div", { className: "panel-head" }, element("h2", { id: "letters-title", tabIndex: -1, text: `Dead letters of ${consumer.name}` }), element("span", { className: "note", text: `${counted(told.count, "letter")}, the oldest ${count(told.letters.length)} shown` }), ...(page.mayAct && items.length ? [element("div", { className: "row" }, all, ...buttons)] : [])),
      items.length ? list : element("p", { className: "none", text: "It has given up nothing." }),
    );
  }

  /** @param {{ name: string, namespace: string }} consumer @param {HTMLElement} list @param {string} path */
  async function change(consumer, list, path) {
    const ids = [.../** @type {NodeListOf<HTMLInputElement>} */ (list.querySelectorAll("input:checked"))].map(({ value }) => value);
    if (!ids.length) {
      outcome.say("Choose letters first.", true);
      return;
    }
    try {
      const { changed } = await act(`letters/${path}`, { consumer: consumer.name, namespace: consumer.namespace, ids });
      if (chosen === consumer) await open(consumer);
      outcome.say(path === "retry" ? `${counted(changed, "task")} to be tried again.` : `${counted(changed, "letter")} discarded.`);
      await polling.ask();
    } catch (error) {
      outcome.fault(error);
    }
  }

  return { root, close: polling.close };
}

/** @param {any} each @param {(consumer: { name: string, namespace: string }) => void} open @returns {import("../grid.js").Row} */
function row(each, open) {
  const runs = each.idle_s !== null && each.idle_s < 60;
  const { name, namespace } = each;
  return {
    key: `${namespace} ${name}`,
    cells: [
      page.namespaces.length > 1 ? `${name} in /${namespace}` : name,
      each.elsewhere.length ? { text: "on another server", tone: "bad" } : runs ? { text: "runs", tone: "good" } : { text: "does not run", tone: each.lag ? "bad" : "quiet" },
      count(each.lag),
      count(each.leased),
      count(each.waiting),
      each.dead ? { text: count(each.dead), tone: "warning" } : "0",
      each.missed ? { text: count(each.missed), tone: "bad" } : "0",
      each.idle_s === null ? "–" : `${duration(each.idle_s)} ago`,
      { buttons: [{ label: "Dead letters", name: `Dead letters of ${name}`, press: () => open({ name, namespace }) }] },
    ],
  };
}

/** @param {HTMLElement} list */
function setAll(list) {
  for (const each of /** @type {NodeListOf<HTMLInputElement>} */ (list.querySelectorAll("input"))) each.checked = true;
}

/** @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
