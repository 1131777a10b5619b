/**
 * The live tail: events of a pattern as they come, from now on, from the last hundred, or from a time; one of them as a tree; a form to publish.
 *
 * In: an ordinary subscription with the policy `drop`. A flood costs this page events, whose number it shows, and affects no other client.
 * It is drawn at most four times a second, and bounded by the buffer.
 */
import { element } from "../../../design/element.js";
import { field, namespaceSelect, Outcome, onSend, select } from "../fields.js";
import { clock, count, counted } from "../format.js";
import { page } from "../page.js";
import { publishForm } from "../publish-form.js";
import { TailBuffer } from "../tail-buffer.js";
import { tree } from "../tree.js";

const DRAW_MS = 250;
const LAST = 100;
const REASONS = /** @type {Record<string, string>} */ ({ overflow: "they came faster than this page reads", trimmed: "the log has them no longer", log_lost: "the log was lost", rolled_back: "Redis has lost the end of its log" });

/** @param {import("../main.js").Context} context */
export function tail({ line }) {
  const buffer = new TailBuffer();
  const namespace = namespaceSelect(page.namespaces);
  const pattern = element("input", { className: "code", value: "#", required: true, autocomplete: "off", spellcheck: false });
  const from = select([["now", "now on"], ["last", `the last ${LAST}`], ["time", "a time"]], "last");
  const time = element("input", { type: "datetime-local", step: 1 });
  const timeField = field("Time", time);
  timeField.hidden = true;
  const filter = element("input", { type: "search", placeholder: "Filter by text", autocomplete: "off", aria: { label: "Filter by text in topic or data" } });
  const pause = element("button", { type: "button", className: "button small", text: "Pause", aria: { pressed: "false" } });
  const clear = element("button", { type: "button", className: "button small", text: "Clear" });
  const counter = element("span", { className: "note" });
  const outcome = new Outcome();
  const rows = element("ul", { className: "tail-rows", role: "list", tabIndex: 0, aria: { labelledby: "tail-title" } });
  const none = element("p", { className: "none", text: "No event yet." });
  const chosen = element("div");
  const form = element(
    "form",
    { className: "form" },
    element("div", { className: "fields" }, ...(page.namespaces.length > 1 ? [field("Namespace", namespace)] : []), field("Pattern", pattern, true), field("From", from), timeField, element("button", { type: "submit", className: "button primary", text: "Follow" })),
    outcome.root,
  );
  const list = element(
    "section",
    { className: "panel", aria: { labelledby: "tail-title" } },
    element("div", { className: "panel-head" }, element("h2", { id: "tail-title", text: "Events" }), counter, element("div", { className: "row" }, element("span", { className: "field" }, filter), pause, clear)),
    rows,
    none,
  );
  const detail = element("section", { className: "panel", aria: { labelledby: "chosen-title" } }, element("div", { className: "panel-head" }, element("h2", { id: "chosen-title", text: "Chosen event" })), chosen);
  const root = element("div", { className: "stack" }, element("section", { className: "box", aria: { label: "Follow a pattern" } }, form), element("div", { className: "tail" }, list, element("div", { className: "stack" }, detail, publishForm())));

  /** @type {{ close: () => void } | null} */
  let subscription = null;
  /** @type {import("../../../src/gate.js").Gate | null} */
  let gate = null;
  /** @type {Map<number, HTMLLIElement>} */
  const drawn = new Map();
  /** @type {number | null} */
  let pressed = null;
  let stale = true;
  choose(null);

  const told = (/** @type {any} */ gap) => {
    const number = gap.count === null ? "Some events are" : counted(gap.count, "event is", "events are");
    buffer.gap(`${number} missing here: ${REASONS[gap.reason] ?? gap.reason}.`, Date.now());
    stale = true;
  };

  const changed = () => {
    stale = true;
  };

  async function follow() {
    stop();
    buffer.clear();
    stale = true;
    const since = from.value === "last" ? { last: LAST } : from.value === "time" ? { time: new Date(time.value).getTime() } : undefined;
    if (since && "time" in since && !Number.isFinite(since.time)) {
      outcome.say("Say when to begin.", true);
      time.focus();
      return;
    }
    gate = line.gate(namespace.value);
    gate.on("delivery:gap", told).on("state:change", changed);
    try {
      const made = gate.subscribe(pattern.value.trim(), { overflow: "drop", repair: false, since }, (/** @type {any} */ data, /** @type {any} */ event) => {
        buffer.event(event.topic, data, event);
        stale = true;
      });
      subscription = made;
      outcome.say(`Asking for ${made.pattern}…`);
      await made.ready;
      if (subscription === made) outcome.say(`Following ${made.pattern} in /${namespace.value}.`);
    } catch (/** @type {any} */ error) {
      outcome.fault(error.code === "invalid_pattern" ? "A pattern is orders.*.shipped or orders.#, for example." : error);
    }
  }

  function stop() {
    gate?.off("delivery:gap", told).off("state:change", changed);
    subscription?.close();
    subscription = null;
  }

  /** @param {import("../tail-buffer.js").EventEntry | null} entry */
  function choose(entry) {
    pressed = entry?.nth ?? null;
    for (const [nth, item] of drawn) item.firstElementChild?.setAttribute("aria-pressed", String(nth === pressed));
    if (!entry) {
      chosen.replaceChildren(element("p", { className: "none", text: "Choose an event in the list to see its data." }));
      return;
    }
    /** @type {[string, string][]} */
    const pairs = [["Topic", entry.topic], ["Time", new Date(entry.time).toLocaleString()], ["Id", entry.id ?? "none: live only"], ["Offset", entry.offset === null ? "none: not in the log" : count(entry.offset)]];
    chosen.replaceChildren(
      element("dl", { className: "facts" }, ...pairs.map(([label, value]) => element("div", {}, element("dt", { text: label }), element("dd", { text: value })))),
      element("div", { className: "tree", tabIndex: 0, role: "group", aria: { label: "Data" } }, tree(entry.data)),
    );
  }

  function draw() {
    if (!stale) return;
    stale = false;
    const shown = buffer.shown;
    none.hidden = shown.length > 0;
    rows.hidden = !shown.length;
    const waits = gate?.state.bus === "down" ? "Redis does not answer the gateway: events come when it is back." : "";
    none.textContent = buffer.received ? "No event of the list holds this text." : waits || "No event yet. What is published under this pattern appears here.";
    counter.textContent = buffer.paused ? `paused, ${counted(buffer.waiting, "new event", "new events")}` : `${counted(buffer.received, "event")}, the newest ${count(shown.length)} shown`;
    const wanted = new Set(shown.map(({ nth }) => nth));
    for (const [nth, item] of drawn) {
      if (!wanted.has(nth)) {
        item.remove();
        drawn.delete(nth);
      }
    }
    /** @type {Element | null} */
    let before = rows.firstElementChild;
    for (const entry of shown) {
      const known = drawn.get(entry.nth);
      if (known && known === before) before = before.nextElementSibling;
      else {
        const item = known ?? made(entry);
        drawn.set(entry.nth, item);
        rows.insertBefore(item, before);
      }
    }
  }

  /** @param {import("../tail-buffer.js").Entry} entry */
  function made(entry) {
    if (entry.kind === "gap") return element("li", { className: "missing", text: `${clock(entry.time)} ${entry.text}` });
    const button = element(
      "button",
      { type: "button", className: "tail-row", onclick: () => choose(entry), aria: { pressed: String(entry.nth === pressed) } },
      element("time", { dateTime: new Date(entry.time).toISOString(), text: clock(entry.time) }),
      element("code", { text: entry.topic }),
      element("span", { className: "data", text: entry.text }),
    );
    return element("li", {}, button);
  }

  from.addEventListener("change", () => {
    timeField.hidden = from.value !== "time";
  });
  filter.addEventListener("input", () => {
    buffer.filter = filter.value;
    stale = true;
    draw();
  });
  pause.addEventListener("click", () => {
    if (buffer.paused) buffer.resume();
    else buffer.pause();
    pause.setAttribute("aria-pressed", String(buffer.paused));
    pause.textContent = buffer.paused ? "Resume" : "Pause";
    stale = true;
    draw();
  });
  clear.addEventListener("click", () => {
    buffer.clear();
    choose(null);
    stale = true;
    draw();
  });
  // The arrow keys move between events, as in a list.
  rows.addEventListener("keydown", (event) => {
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    const item = document.activeElement?.closest(".tail-rows > li");
    if (!step) return;
    const next = item ? /** @type {any} */ (item)[step] : rows.firstElementChild;
    next?.querySelector("button")?.focus();
    event.preventDefault();
  });
  onSend(form, follow);
  follow();
  const timer = setInterval(draw, DRAW_MS);

  return {
    root,
    close() {
      clearInterval(timer);
      stop();
    },
  };
}
