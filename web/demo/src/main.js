/**
 * The page: it makes every part and connects them, in the order in which an event travels: token, gate, collection, board, alerts
 * and notification centre, panel, lab.
 */
import { connect } from "headgate";
import { NotificationList } from "headgate/backbone";
import { Alerts, switchFor } from "./alerts.js";
import { Board } from "./board.js";
import { Centre } from "./centre.js";
import { Chart } from "./chart.js";
import { Deletions } from "./deletions.js";
import { Edits } from "./edits.js";
import { byId } from "../../design/element.js";
import { Lab } from "./lab.js";
import { Line } from "./line.js";
import { isStatus, neighbour } from "./order.js";
import { Orders } from "./orders.js";
import { Panel } from "./panel.js";
import { Preferences } from "./preferences.js";
import { ReadMemory } from "./read-memory.js";
import { Shop } from "./shop.js";
import { Timeline } from "./timeline.js";
import { Toasts } from "./toasts.js";
import { wordsFor } from "./words.js";

const { user = "", users = "{}", carrierLength, noteLength, stallS } = document.body.dataset;
/** @type {Record<string, string>} */
const names = JSON.parse(users);
const page = { user, names, limits: { carrier: Number(carrierLength), note: Number(noteLength) } };

const shop = new Shop(user, restarted);
const line = new Line();
// Only by WebSocket: HTTP gets through a line that is cut.
const gate = connect(location.origin, { token: () => shop.signIn(), transport: "websocket", WebSocket: line.WebSocket });
const toasts = new Toasts(byId("toasts"));
const timeline = new Timeline(byId("timeline"));
const orders = new Orders(shop, gate);
const complain = (/** @type {string} */ title, /** @type {string} */ detail) => toasts.show({ title, detail, status: "failed" });
const edits = new Edits(shop, orders, complain, names);

/** @param {string} id @param {string | null} status */
async function move(id, status) {
  const seen = orders.get(id)?.get("status");
  if (!isStatus(status) || seen === status) return;
  const card = board.card(id);
  if (card) card.busy = true;
  const outcome = await edits.change(id, "status", status, seen);
  if (card) card.busy = false;
  if (outcome.theirs) toasts.show({ title: `Order ${id} is ${outcome.theirs} already`, detail: `${outcome.who} moved it first`, status: outcome.theirs });
}

/** @param {string} id @param {boolean} byKeyboard */
async function remove(id, byKeyboard) {
  const gone = await edits.remove(id);
  if (gone) deletions.show(gone, byKeyboard);
}

/** The server keeps its orders in memory. A crash replaces them, and this board must not go on showing the old ones. */
function restarted() {
  orders.startOver();
  toasts.show({ title: "The server was restarted", detail: "The demo's orders start over. This board shows the orders that the server has now." });
}

const board = new Board(
  byId("board"),
  orders,
  {
    move,
    step: (id, step) => void move(id, neighbour(orders.get(id)?.attributes ?? {}, step)),
    edit: (id, field, value, seen) => edits.change(id, field, value, seen),
    remove: (id, byKeyboard) => void remove(id, byKeyboard),
  },
  page,
);
const deletions = new Deletions(byId("deletions"), (deletion) => edits.restore(deletion), board);
byId("new-order").addEventListener("click", () => void edits.create());

// What was there before the page opened is in the centre; a toast says what has happened since.
let openedAt = Infinity;
gate.once("connection:up", (/** @type {{ offset: number }} */ { offset }) => {
  openedAt = offset;
});
gate.on("delivery:gap", (/** @type {any} */ { lost }) => {
  if (lost) openedAt = 0;
});
const isPast = (/** @type {any} */ event) => event.replayed && event.offset <= openedAt;

const alerts = byId("alerts");
const preferences = new Preferences(user, () => localStorage);
// Nobody needs to be told of what they have just done.
const isOwn = (/** @type {any} */ data) => data?.by === user;
const memory = new ReadMemory(user, () => localStorage, Date.now());
const list = new NotificationList([], { gate, accepts: (data) => !isOwn(data), wasRead: (/** @type {any} */ event) => memory.has(event) });
list.on("add change:read", () => memory.keep(list.map((/** @type {any} */ each) => each.attributes)));
const title = document.title;
list.on("unread", (/** @type {number} */ count) => {
  document.title = count ? `(${count}) ${title}` : title;
});
const words = (/** @type {string} */ topic, /** @type {any} */ data) => wordsFor(topic, data, page);
const centre = new Centre(
  {
    panel: byId("centre"),
    bell: byId("bell"),
    badge: byId("bell-badge"),
    title: byId("centre-title"),
    items: byId("centre-items"),
    readAll: byId("read-all"),
    unread: byId("centre-unread"),
  },
  list,
  words,
  { opened: () => toasts.clear(), show: (id) => board.focus(id) },
);
new Alerts(alerts, gate, preferences, list, (data, event) => {
  if (!isPast(event) && !isOwn(data) && !centre.isOpen) toasts.show({ ...words(event.topic, data), topic: event.topic });
});
const live = switchFor("live", "Live board", orders.pattern, true, (chosen) => {
  if (chosen) orders.goLive();
  else orders.goStill();
  showBanner();
});
live.classList.add("apart");
alerts.append(live);

const panel = new Panel(gate, line, {
  figures: byId("figures"),
  subscriptions: byId("subscriptions"),
  kept: byId("kept"),
  pill: byId("connection"),
});

const lab = new Lab(
  { gate, shop, line, diary: new Timeline(byId("diary")), complain, isLive: () => orders.live },
  {
    chart: new Chart(byId("pulse"), byId("pulse-words"), byId("pulse-most"), byId("pulse-slowest")),
    tools: byId("tools"),
    stall: byId("stall"),
    offline: byId("offline"),
    restart: document.getElementById("restart"),
    lose: document.getElementById("lose"),
    verdict: byId("verdict"),
    status: byId("verdict-status"),
    tally: { published: byId("tally-published"), shown: byId("tally-shown"), twice: byId("tally-twice"), slowest: byId("tally-slowest") },
    table: byId("pulse-rows"),
    details: /** @type {HTMLDetailsElement} */ (byId("pulse-table")),
  },
  Number(stallS) * 1000,
);

gate.on("all", (/** @type {string} */ name, /** @type {any} */ _data, /** @type {any} */ event) => {
  if (!name.includes(":") && event && !isPast(event)) {
    timeline.event(event);
    lab.event(event);
  }
});
gate.on("state:change", showState);
line.changed = showState;
let refusal = "";
gate.on("connection:refused", (/** @type {Error} */ { message }) => {
  refusal = message;
});
byId("try-again").addEventListener("click", () => gate.open());
gate.on("delivery:gap", (/** @type {any} */ gap) => timeline.gap(gap));
gate.on("delivery:error", (/** @type {any} */ { pattern, error }) => {
  if (pattern) complain(`Not subscribed to ${pattern}`, error.message);
});
orders.on("error", (/** @type {any} */ _orders, /** @type {Error} */ error) => complain("The board could not be loaded", error.message));
orders.goLive();

function showState() {
  panel.draw();
  showBanner();
}

/** Say above the board why it may differ from the boards of others. */
function showBanner() {
  const { connection, bus } = gate.state;
  let text = "";
  if (line.isCut) text = "Offline on purpose: this tab keeps its subscriptions, and catches up when you go online.";
  else if (connection === "refused") text = `The gateway does not let this page in: ${refusal}.`;
  else if (connection === "waiting") text = "Disconnected. This page tries again, and then catches up on what it missed.";
  else if (bus === "down") text = "The gateway has lost Redis. Events wait there, and arrive when it is back.";
  else if (!orders.live) text = "This board is not live: it shows no changes of others until you turn it on.";
  const banner = byId("banner");
  banner.hidden = !text;
  byId("try-again").hidden = line.isCut || connection !== "refused";
  const said = byId("banner-text");
  if (said.textContent !== text) said.textContent = text;
}
