// The pages of F43: people with tabs on several devices, each tab Headgate's own inbox, with reads at random. Arrays of JSON, a line each.
// `node inbox_pages.mjs <urls> <journal> <seed> <actions per s>` takes commands as its input, and ends with it:
// - ["open", user, token, tabs, devices]  - ["act"]: people begin to look, read and put away  - ["rest"]: they stop, and whoever is offline comes back
// - ["offline", share]: so many tabs lose their connection, until ["online"]  - ["fault", lasts]: something of the site is broken
// - ["count"]: write how many tabs are not yet as the others of their user are, or have something to say  - ["report"]
// Entries of the journal: [kind, …]:
// - count: tabs that are not current, actions without an outcome, users of whom two tabs show another count.
// - shown: user, for each tab [unread, [[item, read], …]], newest first.
// - done: item ids, op, when it was confirmed, epoch, offset, op's event id, and of read_all how far it goes. An op that was refused: no offset, its code.
// - figures: lengths in ms of the times in which two connected tabs of a user showed another count {connected, reconnecting}, how often an
//   item appeared at a tab for the first time, the items that appeared there once more, and those whose archiving a failover took back.
import { openSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";
import WebSocket from "ws";
import { connect } from "../../web/dist/headgate.js";
import { createInbox } from "../../web/dist/headgate.inbox.js";
import { createOutbox } from "../../web/dist/headgate.offline.js";

const [addresses, path, seed, perSecond] = process.argv.slice(2);
const urls = addresses.split(",");
const journal = openSync(path, "a");
const now = () => Number(process.hrtime.bigint()) / 1e9; // the clock of Python's time.monotonic
const write = (...entry) => writeSync(journal, `${JSON.stringify(entry)}\n`);
const STEP_MS = 50;
const PAGE_SIZE = 100;

let state = Number(seed) | 0;
/** A number below another, from the seed (mulberry32). */
function any(below) {
  state = (state + 0x6d2b79f5) | 0;
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
  return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
}

/** @type {Map<string, { tabs: Tab[], focus: number, apartSince: number | null, isDisturbed: boolean }>} */
const people = new Map();
/** Actions by the id of their event. @type {Map<string, any>} */
const actions = new Map();
const apart = { connected: [], reconnecting: [] };
/** `restored`: Redis lost the archiving of these items in a failover, so tabs showed them until the page had archived them again. */
const appeared = { once: 0, again: [], restored: [] };
let underWay = 0;
let isFaulty = false;
let timer;

class Tab {
  isOffline = false;
  isUp = false;
  shown = new Set();
  known = new Set();
  sockets = new Set();

  constructor(user, token) {
    this.user = user;
    const tab = this;
    class Socket extends WebSocket {
      constructor(address) {
        const to = new URL(address);
        const { hostname, port } = new URL(tab.isOffline ? "http://127.0.0.1:1" : urls[any(urls.length)]);
        Object.assign(to, { hostname, port });
        super(to);
        tab.sockets.add(this);
        this.on("close", () => tab.sockets.delete(this));
      }
    }
    this.gate = connect(urls[0], { WebSocket: Socket, transport: "websocket", token, reconnectDelayMinMs: 100, reconnectDelayMaxMs: 1000 });
    this.gate.on("connection:up connection:down", () => this.connected());
    this.gate.on("publish:receipt", ({ id, receipt, replaces }) => {
      const action = Object.assign(actions.get(id), { at: now(), epoch: receipt.epoch, offset: receipt.offset });
      if (replaces && action.op === "archive") appeared.restored.push(...action.ids);
    });
    this.gate.on("publish:refused", ({ error }) => write("refused", error.code));
    const outbox = createOutbox(this.gate);
    const publish = async (topic, change, { id }) => {
      const ids = change.ids ?? this.inbox.items.filter(({ at, read }) => !read && at <= change.up_to).map((item) => item.id);
      actions.set(id, { ids, op: change.op });
      return outbox.publish(topic, change, { id });
    };
    this.inbox = createInbox(this.gate, { pageSize: PAGE_SIZE, outbox: { publish } });
    this.inbox.subscribe(() => this.changed());
  }

  get isCurrent() {
    return this.isUp && this.inbox.getSnapshot().status === "current";
  }

  connected() {
    this.isUp = this.gate.state.connection === "up";
    compare(this.user, true);
  }

  changed() {
    const shown = new Set(this.inbox.items.map(({ id }) => id));
    for (const id of shown) {
      if (this.shown.has(id)) continue;
      if (this.known.has(id)) appeared.again.push(id);
      else appeared.once++;
      this.known.add(id);
    }
    this.shown = shown;
    compare(this.user);
  }

  offline(is) {
    this.isOffline = is;
    if (is) for (const socket of this.sockets) socket.terminate();
  }

  act() {
    const { items, unread } = this.inbox.getSnapshot();
    const fresh = items.filter(({ read }) => !read);
    const some = Array.from({ length: 1 + any(3) }, () => (fresh.length ? fresh : items)[any(fresh.length || items.length)]?.id).filter(Boolean);
    const old = items.filter(({ read }) => read).slice(-2).map(({ id }) => id);
    const kind = any(20);
    if (kind < 13) return some.length && fresh.length ? this.inbox.markRead(some) : undefined;
    if (kind < 15) return unread ? this.inbox.markAllRead() : undefined;
    if (kind < 18) return old.length ? this.inbox.archive(old) : undefined;
    return old.length ? this.inbox.markUnread(old.slice(0, 1)) : undefined;
  }
}

/** Note how long connected tabs of a user have shown another count than each other, and whether something was broken then. */
function compare(user, isDisturbed = isFaulty) {
  const person = people.get(user);
  const counts = new Set(person.tabs.filter((tab) => tab.isCurrent).map((tab) => tab.inbox.unread));
  if (counts.size > 1) {
    if (person.apartSince === null) [person.apartSince, person.isDisturbed] = [now(), false];
    person.isDisturbed ||= isDisturbed;
  } else if (person.apartSince !== null) {
    apart[person.isDisturbed || isDisturbed ? "reconnecting" : "connected"].push(1000 * (now() - person.apartSince));
    person.apartSince = null;
  }
}

const everyTab = () => [...people.values()].flatMap(({ tabs }) => tabs);

function step() {
  const names = [...people.keys()];
  const count = Number(perSecond) * (STEP_MS / 1000);
  for (let nth = 0; nth < count; nth++) {
    const person = people.get(names[any(names.length)]);
    if (!any(5)) person.focus = any(person.tabs.length);
    const done = person.tabs[person.focus].act();
    if (!done) continue;
    underWay++;
    done.catch(() => {}).then(() => underWay--);
  }
}

const commands = {
  open(user, token, tabs, devices) {
    people.set(user, { tabs: [], focus: 0, apartSince: null, isDisturbed: false });
    people.get(user).tabs = Array.from({ length: tabs * devices }, () => new Tab(user, token));
  },
  act() {
    timer = setInterval(step, STEP_MS);
  },
  rest() {
    clearInterval(timer);
    commands.online();
  },
  offline(share) {
    for (const tab of everyTab()) if (any(1000) < 1000 * share) tab.offline(true);
  },
  online() {
    for (const tab of everyTab()) tab.offline(false);
  },
  fault(lasts) {
    isFaulty = lasts;
  },
  count() {
    const stale = everyTab().filter((tab) => !tab.isCurrent).length;
    write("count", stale, underWay, [...people.values()].filter(({ tabs }) => new Set(tabs.map(({ inbox }) => inbox.unread)).size > 1).length);
  },
  report() {
    for (const [user, { tabs }] of people) {
      write("shown", user, tabs.map(({ inbox }) => [inbox.unread, inbox.items.map(({ id, read }) => [id, read])]));
    }
    for (const [id, { ids, op, at = null, epoch = null, offset = null }] of actions) write("done", ids, op, at, epoch, offset, id);
    write("figures", apart, appeared);
  },
};

createInterface({ input: process.stdin })
  .on("line", (line) => {
    const [name, ...rest] = JSON.parse(line);
    commands[name](...rest);
  })
  .on("close", () => process.exit(0));
