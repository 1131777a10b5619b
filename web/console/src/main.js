/**
 * The console's page: the line to the gateway, the history of the numbers, and one view at a time.
 *
 * In: the address, which names the view. Out: the view in the page. Its heading gets the focus when the reader chooses another view.
 *
 * @typedef {{ line: Line, history: History }} Context
 * @typedef {{ root: HTMLElement, close: () => void }} View
 */
import { byId } from "../../design/element.js";
import { History, pointOf } from "./history.js";
import { Line } from "./line.js";
import { page } from "./page.js";
import { clients } from "./views/clients.js";
import { consumers } from "./views/consumers.js";
import { keys } from "./views/keys.js";
import { overview } from "./views/overview.js";
import { presence } from "./views/presence.js";
import { schemas } from "./views/schemas.js";
import { tail } from "./views/tail.js";
import { topics } from "./views/topics.js";
import { trace } from "./views/trace.js";

/** @type {Record<string, (context: Context) => View>} */
const VIEWS = { "": overview, tail, clients, topics, consumers, trace, presence, schemas, keys };

const pill = byId("line");
const line = new Line((state, words) => {
  document.body.dataset.line = state;
  if (pill.textContent !== words) pill.textContent = words;
});
const history = new History();
line.watch((frame) => history.add(Math.round(frame.at / 1000), pointOf(frame)));

/** @type {View | null} */
let shown = null;

/** @param {string} path */
function show(path) {
  shown?.close();
  shown = VIEWS[path]({ line, history });
  byId("view").replaceChildren(shown.root);
  // On a narrow screen the views are one line, which scrolls.
  document.querySelector("a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
}

/** Go to a view without loading the page again. @param {string} path */
function go(path) {
  const links = [.../** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll("a[data-view]"))];
  const link = links.find(({ dataset }) => dataset.view === path);
  if (!link || !VIEWS[path]) return;
  for (const each of links) each.toggleAttribute("aria-current", false);
  link.setAttribute("aria-current", "page");
  const title = byId("title");
  title.textContent = link.textContent;
  document.title = `${link.textContent} · Headgate console`;
  document.body.dataset.view = path;
  show(path);
  scrollTo(0, 0);
  byId("main").focus({ preventScroll: true });
}

document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? /** @type {HTMLAnchorElement | null} */ (event.target.closest("a[data-view]")) : null;
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  if (document.body.dataset.view === link.dataset.view) return;
  window.history.pushState(null, "", link.href);
  go(link.dataset.view ?? "");
});
addEventListener("popstate", () => go(location.pathname.replace(/^\/console\/?/, "")));

show(page.view);
