/** The way of an event, found by its id or offset: published, at each gateway, handled, shown, at each consumer. */
import { element } from "../../../design/element.js";
import { field, namespaceSelect, Outcome, onSend } from "../fields.js";
import { bytes, count, counted } from "../format.js";
import { page, read } from "../page.js";

/** @type {Record<string, { className: string }>} */
const STEPS = { good: { className: "step is-good" }, warning: { className: "step is-warning" }, bad: { className: "step is-bad" }, quiet: { className: "step is-quiet" } };
const COUNTS = /** @type {[string, string][]} */ ([
  ["written", "written at once"],
  ["queued", "through the queue"],
  ["kept", "kept as the newest of its topic"],
  ["conflated", "conflated"],
  ["discarded", "discarded, and reported"],
  ["left_to_log", "left to the log"],
  ["gone", "gone with the connection"],
  ["from_log", "read from the log"],
]);
const BROWSERS = /** @type {[string, string][]} */ ([
  ["unhandled", "passed it without a handler: a gap, or no handler then"],
  ["behind", "not there yet"],
  ["unknown", "came later, or no longer remember"],
  ["unanswered", "did not answer"],
  ["not_asked", "not asked"],
]);
const CONSUMERS = /** @type {Record<string, string>} */ ({ done: "good", leased: "warning", waiting: "warning", dead: "bad" });

export function trace() {
  const namespace = namespaceSelect(page.namespaces);
  const event = element("input", { className: "code", required: true, autocomplete: "off", spellcheck: false, placeholder: "id or offset" });
  const outcome = new Outcome();
  const form = element(
    "form",
    { className: "form" },
    element("div", { className: "fields" }, ...(page.namespaces.length > 1 ? [field("Namespace", namespace)] : []), field("Event", event, true), element("button", { type: "submit", className: "button primary", text: "Trace" })),
    outcome.root,
  );
  const found = element("div", { className: "stack" });
  const every = page.traceEvery ? `Gateways report every event${page.traceEvery === 1 ? "" : `, and above 100 a second every ${count(page.traceEvery)}th`} (HEADGATE_TRACE_EVERY).` : "Gateways report no event, because HEADGATE_TRACE_EVERY is 0.";
  outcome.say(`An event can be found while the log has it. ${every}`);
  onSend(form, async () => {
    try {
      const told = await read("api/trace", { event: event.value.trim(), namespace: namespace.value });
      outcome.say("");
      found.replaceChildren(panel(told));
    } catch (error) {
      found.replaceChildren();
      outcome.fault(error);
    }
  });
  return { root: element("div", { className: "stack" }, element("section", { className: "box", aria: { label: "Find an event" } }, form), found), close() {} };
}

/** @param {any} told */
function panel(told) {
  const gateways = told.gateways.map((/** @type {any} */ { gateway, counts }) => {
    return step(counts.discarded || counts.gone ? "warning" : "good", `${gateway}: for ${counted(counts.matched, "client")}`, parts(COUNTS, counts));
  });
  const consumers = told.consumers.map((/** @type {any} */ { consumer, state, attempts, reason, outcomes }) =>
    step(CONSUMERS[state] ?? "quiet", `Consumer ${consumer}: ${state}`, [attempts ? counted(attempts, "attempt") : "", reason, ...outcomes].filter(Boolean).join(": ")),
  );
  const { clients = 0, handled = 0, ...others } = told.browsers ?? {};
  const browsers = clients ? [step(handled === clients ? "good" : others.unhandled ? "warning" : "quiet", `Handled in ${count(handled)} of ${counted(clients, "browser")} connected now`, parts(BROWSERS, others))] : [];
  const user = told.state === null ? [] : [step(told.state === "shown" || told.state === "read" ? "good" : "quiet", `For its user: ${told.state}`, "")];
  const steps = [
    step("good", `Published to ${told.topic}`, `${new Date(told.time_ms).toLocaleString()}, ${bytes(told.bytes)}`),
    step("good", `In the log of /${told.namespace} at offset ${count(told.offset)}`, `Epoch ${told.epoch}; the log is at ${count(told.head)} now. Id ${told.id}.`),
    ...gateways,
    ...browsers,
    ...user,
    ...consumers,
    ...told.notes.map((/** @type {string} */ note) => step("quiet", "Not known", note)),
  ];
  return element("section", { className: "panel", aria: { labelledby: "trace-title" } }, element("div", { className: "panel-head" }, element("h2", { id: "trace-title", text: "The path of the event" })), element("ol", { className: "steps" }, ...steps));
}

/** Return the counts above 0 as text. @param {[string, string][]} words @param {Record<string, number>} counts */
const parts = (words, counts) => words.filter(([name]) => counts[name]).map(([name, text]) => `${count(counts[name])} ${text}`).join(", ");

/** @param {string} tone @param {string} text @param {string} more */
function step(tone, text, more) {
  return element("li", STEPS[tone], element("strong", { text }), element("p", { text: more }));
}
