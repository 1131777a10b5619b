/** The clients of all gateways, those with trouble first; the details of one; buttons to disconnect one, or all of a user. */
import { element } from "../../../design/element.js";
import { askFirst } from "../ask-first.js";
import { field, Outcome, select } from "../fields.js";
import { bytes, clock, count, counted, duration } from "../format.js";
import { Grid } from "../grid.js";
import { act, page, read } from "../page.js";

const ASK_MS = 3000;

export function clients() {
  const namespace = select([["", "all"], ...page.namespaces.map((name) => /** @type {[string, string]} */ ([name, `/${name}`]))]);
  const user = element("input", { type: "search", placeholder: "any user", autocomplete: "off", spellcheck: false });
  const sort = select([["trouble", "what is wrong"], ["queue", "fullest queue"], ["newest", "newest"], ["user", "user"]]);
  const grid = new Grid(
    "Clients",
    [{ label: "User" }, { label: "State" }, { label: "Connected", number: true }, { label: "Queue", number: true }, { label: "Left out", number: true }, { label: "Gaps", number: true }, { label: "Behind", number: true }, { label: "Subscriptions", number: true }, { label: "Process" }, { label: "More" }],
    "No client is connected. Pages appear here as soon as they connect.",
  );
  const counter = element("span", { className: "note" });
  const more = element("button", { type: "button", className: "button small", text: "Next page", hidden: true });
  const first = element("button", { type: "button", className: "button small", text: "First page", hidden: true });
  const outcome = new Outcome();
  const detail = element("div");
  grid.head.append(counter, element("div", { className: "row" }, ...(page.namespaces.length > 1 ? [field("Namespace", namespace)] : []), field("User", user), field("Sort by", sort)));
  const root = element("div", { className: "stack" }, grid.root, element("div", { className: "row" }, first, more, grid.outcome.root, outcome.root), detail);
  /** @type {string | null} */
  let after = null;
  /** @type {string | null} */
  let next = null;

  const ask = () => read("api/clients", { namespace: namespace.value, user: user.value.trim(), sort: sort.value, after });
  const polling = grid.poll(ASK_MS, "The clients", ask, (answer) => {
    const silent = answer.silent.length ? `; no answer from ${answer.silent.join(", ")}` : "";
    counter.textContent = `${counted(answer.total, "client")}${silent}`;
    next = answer.after;
    more.hidden = next === null;
    first.hidden = after === null;
    grid.show(answer.clients.map(row), user.value.trim() ? "No client of this user is connected." : undefined);
  });

  /** @param {any} each @returns {import("../grid.js").Row} */
  function row(each) {
    const { session } = each;
    return {
      key: session,
      cells: [
        page.namespaces.length > 1 ? `${each.user} in /${each.namespace}` : each.user,
        each.trouble.length ? { text: each.trouble.join(", "), tone: each.lagging ? "bad" : "warning" } : { text: each.transport === "websocket" ? "live" : "live, by polling", tone: "good" },
        duration(Math.max(0, (Date.now() - each.since_ms) / 1000)),
        each.queued ? `${count(each.queued)} (${bytes(each.queued_bytes)})` : "0",
        count(each.discarded),
        count(each.gaps),
        count(each.behind),
        count(each.subscriptions),
        each.gateway,
        { buttons: [{ label: "Details", name: `Details of ${each.user}, session ${session}`, press: () => open(session) }] },
      ],
    };
  }

  /** @param {string} session */
  async function open(session) {
    try {
      const { client } = await read("api/client", { session });
      detail.replaceChildren(client ? panel(client) : element("p", { className: "note", text: "This client has left." }));
      detail.querySelector("h2")?.focus();
    } catch (error) {
      outcome.fault(error);
    }
  }

  /** @param {any} client */
  function panel(client) {
    /** @type {[string, string][]} */
    const pairs = [
      ["Session", client.session],
      ["Namespace", `/${client.namespace}`],
      ["Address", client.address ?? "not shown"],
      ["Transport", client.transport],
      ["Connected", `${duration((Date.now() - client.since_ms) / 1000)} ago, at ${clock(client.since_ms)}`],
      ["Process", client.gateway],
      ["State", client.state],
      ["Position", `${count(client.position)}, ${count(client.behind)} behind`],
    ];
    const buttons = [
      element("button", { type: "button", className: "button small", text: "Disconnect", onclick: () => disconnect({ session: client.session }, `Disconnect this client of ${client.user}?`) }),
      element("button", { type: "button", className: "button small", text: `Disconnect all of ${client.user}`, onclick: () => disconnect({ user: client.user }, `Disconnect every client of ${client.user}?`) }),
    ];
    const patterns = client.patterns.length ? element("ul", { className: "patterns" }, ...client.patterns.map((/** @type {string} */ text) => element("li", {}, element("code", { text })))) : element("p", { className: "note", text: "It has no subscriptions." });
    return element(
      "section",
      { className: "panel", aria: { labelledby: "client-title" } },
      element("div", { className: "panel-head" }, element("h2", { id: "client-title", tabIndex: -1, text: client.user }), ...(page.mayAct ? [element("div", { className: "row" }, ...buttons)] : [])),
      element("dl", { className: "facts" }, ...pairs.map(([label, value]) => element("div", {}, element("dt", { text: label }), element("dd", { text: value }))), element("div", {}, element("dt", { text: "Subscriptions" }), element("dd", {}, patterns))),
    );
  }

  /** @param {object} which @param {string} question */
  async function disconnect(which, question) {
    if (!(await askFirst(question, "The page is notified, and may reconnect at once. The command headgate revoke keeps a user out.", "Disconnect"))) return;
    try {
      const { disconnected, silent } = await act("disconnect", which);
      detail.replaceChildren();
      outcome.say(`${counted(disconnected, "client")} disconnected${silent.length ? `; no answer from ${silent.join(", ")}` : ""}.`);
      await polling.ask();
    } catch (error) {
      outcome.fault(error);
    }
  }

  /** Show a page. @param {string | null} from */
  function turn(from) {
    after = from;
    polling.ask();
  }
  for (const each of [namespace, sort, user]) each.addEventListener("change", () => turn(null));
  more.addEventListener("click", () => turn(next));
  first.addEventListener("click", () => turn(null));
  return { root, close: polling.close };
}
