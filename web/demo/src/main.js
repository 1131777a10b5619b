/**
 * The page: everything put together. Reads top to bottom in the order in which an event travels: token, gate, collection,
 * board, alerts, panel.
 */
import { connect } from "headgate";
import { Alerts, switchFor } from "./alerts.js";
import { Board } from "./board.js";
import { Edits } from "./edits.js";
import { byId } from "./element.js";
import { isStatus, neighbour } from "./order.js";
import { Orders } from "./orders.js";
import { Panel } from "./panel.js";
import { Shop } from "./shop.js";
import { Timeline } from "./timeline.js";
import { Toasts } from "./toasts.js";
import { wordsFor } from "./words.js";

const { user = "", users = "{}", carrierLength, noteLength } = document.body.dataset;
/** @type {Record<string, string>} */
const names = JSON.parse(users);
const page = { user, names, limits: { carrier: Number(carrierLength), note: Number(noteLength) } };

const shop = new Shop(user);
const gate = connect(location.origin, { token: () => shop.token() });
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

const board = new Board(
  byId("board"),
  orders,
  {
    move,
    step: (id, step) => void move(id, neighbour(orders.get(id)?.attributes ?? {}, step)),
    edit: (id, field, value, seen) => edits.change(id, field, value, seen),
    remove: (id) => void edits.remove(id),
  },
  page,
);
byId("new-order").addEventListener("click", () => void edits.create());
byId("burst").addEventListener("click", () => void edits.burst());

const alerts = byId("alerts");
new Alerts(alerts, gate, user, (data, event) => toasts.show({ ...wordsFor(event.topic, data, page), topic: event.topic }));
const live = switchFor("live", "Live board", orders.pattern, true, (chosen) => {
  if (chosen) orders.goLive();
  else orders.goStill();
  showBanner();
});
live.classList.add("apart");
alerts.append(live);

const panel = new Panel(gate, {
  figures: byId("figures"),
  spark: byId("spark"),
  subscriptions: byId("subscriptions"),
  pill: byId("connection"),
});

gate.on("all", (/** @type {string} */ name, /** @type {any} */ _data, /** @type {any} */ event) => {
  if (!name.includes(":") && event) timeline.event(event);
});
gate.on("state:change", () => {
  panel.draw();
  showBanner();
});
gate.on("delivery:gap", (/** @type {any} */ gap) => timeline.gap(gap));
gate.on("delivery:error", (/** @type {any} */ { pattern, error }) => {
  if (pattern) complain(`Not subscribed to ${pattern}`, error.message);
});
orders.on("error", (/** @type {any} */ _orders, /** @type {Error} */ error) => complain("The board could not be loaded", error.message));
orders.goLive();

/** Say above the board what may make it differ from what others see. */
function showBanner() {
  const { connection, bus } = gate.state;
  let text = "";
  if (connection === "refused") text = "The gateway does not let this page in. Reload the page to try again.";
  else if (connection === "waiting") text = "Disconnected. Trying again; what happens meanwhile will be caught up.";
  else if (bus === "down") text = "The gateway has lost Redis. Events wait there and follow when it is back.";
  else if (!orders.live) text = "This board is not live: what others change does not show here until you turn that on again.";
  const banner = byId("banner");
  banner.hidden = !text;
  if (banner.textContent !== text) banner.textContent = text;
}
