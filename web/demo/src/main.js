/**
 * The page: a pane for each person, the strip over both, and the troubles between. Parts are connected in the order in which an event travels:
 * token, gate, board and bell (person.js), story, strip, verdict.
 */
import { badgeTitle } from "headgate/inbox";
import { byId } from "../../design/element.js";
import { Person } from "./person.js";
import { Sent } from "./story.js";
import { Strip } from "./strip.js";
import { Troubles } from "./troubles.js";

const TICK_MS = 50;

const { users = "{}", stallS, operator } = document.body.dataset;
const sent = new Sent();
const panes = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".pane")]);
const people = panes.map((pane) => new Person(pane, JSON.parse(users), sent));
const strip = new Strip(byId("lanes"), byId("marks"), sent, people);
const troubles = new Troubles(byId("troubles"), people, { stallMs: Number(stallS) * 1000, hasOperator: operator === "yes", button: byId("break") }, {
  mark: (number) => strip.mark(number),
  say: (text) => {
    byId("caption").textContent = text;
  },
});
byId("break").addEventListener("click", () => void troubles.guide());
if (people.length === 1) badgeTitle(people[0].bell.inbox);
setInterval(() => {
  for (const { story, gate } of people) story.tick(performance.now(), gate.state);
}, TICK_MS);
