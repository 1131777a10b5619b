/**
 * The entry point `headgate/inbox`: the inbox of the gate's user, the same in every tab and on every device.
 *
 * In: pages that the gateway answers, events of `users.me.inbox.#`, actions of the application. Out: snapshots {items, unread, mutes, hasMore, status, error}
 * for frameworks, and a publish on `users.me.inbox` for each action. An action shows at once, and is undone when it is refused.
 *
 * It follows the server while it has listeners. It reads the inbox again when events may be missing (load.js), after a connection that did not resume or
 * after a gap.
 *
 * @import { HeadgateEvent, Receipt } from "../gate.js"
 * @import { Source } from "../stores/snapshot-store.js"
 * @import { Change, Channel, Item, Mutes } from "./items.js"
 *
 * @typedef {"loading" | "behind" | "current" | "failed"} InboxStatus as for a live collection
 * @typedef {{ readonly items: readonly Item[], readonly unread: number, readonly mutes: Mutes, readonly hasMore: boolean, readonly status: InboxStatus, readonly error: any }} InboxSnapshot
 * @typedef {{ publish: (topic: string, data: unknown, options: { id: string }) => Promise<Receipt> }} Publishing
 */
import { newId } from "../base/new-id.js";
import { MAX_DELAY_MS } from "../base/timer.js";
import { OUTBOX, TEXTS } from "../language/options.js";
import { INBOX } from "../language/protocol.js";
import { checkPattern, checkTopic, Dispatcher, Gate, HeadgateError, load, matches } from "../index.js";
import { createStore } from "../stores/snapshot-store.js";
import { Items } from "./items.js";

const PATTERN = "users.me.inbox.#";
const TOPIC = "users.me.inbox";
/** The most items of one answer, and ids of one change. */
const MOST = 100;

/** @type {import("../language/options.js").Table} */
const OPTIONS = { pageSize: [[1, MOST, true], 20], outbox: [OUTBOX] };
/** @type {readonly Channel[]} */
const CHANNELS = ["mail", "page", "push"];

/**
 * Make the inbox of a gate's user.
 * @param {Gate} gate
 * @param {{ pageSize?: number, outbox?: Publishing }} [options] `outbox`: from headgate/offline, which keeps actions while there is no connection
 * @throws {TypeError} an option that breaks its rule
 */
export function createInbox(gate, options = {}) {
  const { pageSize, outbox = gate } = Gate._optionsOf(gate, "createInbox", OPTIONS, options);
  const alerts = new Dispatcher();
  /** @type {InboxSnapshot} */
  const first = Object.freeze({ items: [], unread: 0, mutes: {}, hasMore: false, status: "loading", error: null });
  const store = createStore(first, (/** @type {() => void} */ changed) => new InboxSource(gate, pageSize, first, changed, alerts));

  /** @param {Change} change */
  async function act(change) {
    const [mine, id] = [store._source(), newId()];
    mine?.begin(id, change);
    try {
      const receipt = await outbox.publish(TOPIC, change, { id });
      mine?.confirm(id, receipt);
    } catch (error) {
      mine?.fail(id);
      throw error;
    }
  }

  /** @param {"read" | "unread" | "archive"} op @param {string | readonly string[]} given */
  async function actOn(op, given) {
    const ids = typeof given === "string" ? [given] : given;
    Gate._check("inbox: ids", TEXTS, ids);
    const acts = [];
    for (let at = 0; at < ids.length; at += MOST) acts.push(act({ op, ids: ids.slice(at, at + MOST) }));
    await Promise.all(acts);
  }

  return {
    ...store,
    /**
     * Call a listener with each item that arrives while the inbox has listeners, and is not muted in pages. Return the function that ends this.
     * @param {(item: Item) => void} listener
     */
    onAlert(listener) {
      Gate._check("onAlert: listener", "function", listener);
      // A separate function, so that a listener passed twice ends each by itself.
      const own = (/** @type {Item} */ item) => listener(item);
      alerts.on("alert", own);
      return () => void alerts.off("alert", own);
    },
    /** @param {string} kind @param {Channel} [channel] */
    isMuted: (kind, channel = "page") => checkChannels([channel]) && isMuted(store.getSnapshot().mutes, checkTopic(kind), channel),
    /**
     * Mute a pattern of kinds on exactly these channels, on every device of the user.
     * @param {string} pattern @param {readonly Channel[]} [channels] @returns {Promise<void>} as for markRead
     */
    async mute(pattern, channels = CHANNELS) {
      checkChannels(channels);
      await act({ op: "mute", pattern: checkPattern(pattern), channels: [...new Set(channels)] });
    },
    /** @param {string} pattern */
    unmute: async (pattern) => act({ op: "unmute", pattern: checkPattern(pattern) }),
    get items() {
      return store.getSnapshot().items;
    },
    get unread() {
      return store.getSnapshot().unread;
    },
    /** Load older items. @returns {Promise<void>} rejected with HeadgateError */
    loadMore: async () => store._source()?.loadMore(),
    /** @param {string | readonly string[]} ids @returns {Promise<void>} settled by the gateway's answer; if it is rejected, with HeadgateError, the change is undone */
    markRead: (ids) => actOn("read", ids),
    /** @param {string | readonly string[]} ids */
    markUnread: (ids) => actOn("unread", ids),
    /** @param {string | readonly string[]} ids */
    archive: (ids) => actOn("archive", ids),
    /** Mark all items up to the newest shown one as read. @returns {Promise<void>} */
    async markAllRead() {
      const [newest] = store.getSnapshot().items;
      if (newest) await act({ op: "read_all", up_to: newest.at, epoch: gate.state.epoch });
    },
  };
}

/**
 * Show the unread count before a page's title. Return the function that ends this.
 * @param {{ subscribe: (listener: () => void) => () => void, readonly unread: number }} inbox
 * @param {{ title: string }} [page]
 */
export function badgeTitle(inbox, page = globalThis.document) {
  Gate._check("badgeTitle: inbox", ".subscribe", inbox);
  Gate._check("badgeTitle: title of the page", "string", Object(page).title);
  let { title } = page;
  let shown = title;
  const show = () => {
    // The application has changed the title.
    if (page.title !== shown) title = page.title;
    page.title = inbox.unread ? `(${inbox.unread}) ${title}` : title;
    // As the page returns it, without surplus spaces.
    shown = page.title;
  };
  const leave = inbox.subscribe(show);
  return () => {
    leave();
    if (page.title === shown) page.title = title;
  };
}

/** @param {any} channels @throws {HeadgateError} */
function checkChannels(channels) {
  if (Array.isArray(channels) && channels.length && channels.every((each) => CHANNELS.includes(each))) return true;
  throw new HeadgateError("invalid_request", { reason: `channels: expected some of ${CHANNELS.join(", ")}` });
}

/** @param {Mutes} mutes @param {string} kind @param {Channel} channel */
function isMuted(mutes, kind, channel) {
  return Object.entries(mutes).some(([pattern, channels]) => channels.includes(channel) && matches(pattern, kind));
}

/** @implements {Source<InboxSnapshot>} */
class InboxSource {
  /** Only `end` removes its handler (dispatcher.js). */
  _isPart = true;
  #gate;
  #pageSize;
  #changed;
  #alerts;
  #snapshot;
  #load;
  #items = new Items();
  /** The offset of the latest alerted item, because an event that comes before an answer is applied again after it. */
  #alertedAt = 0;
  #hasNews = false;

  /** @param {Gate} gate @param {number} pageSize @param {InboxSnapshot} first @param {() => void} changed @param {Dispatcher} alerts */
  constructor(gate, pageSize, first, changed, alerts) {
    this.#gate = gate;
    this.#pageSize = pageSize;
    this.#snapshot = first;
    this.#changed = changed;
    this.#alerts = alerts;
    this.#load = load(gate, PATTERN, () => this.#read(), {
      reset: (page) => {
        this.#items.replace(page);
        this.#news();
      },
      apply: (_data, event) => this.#take(event),
      lost: () => {
        this.#alertedAt = 0;
      },
      changed,
      // The fetch waits until the subscription is active.
      timeoutMs: MAX_DELAY_MS,
    });
    // Items of a repaired gap come after later ones and would not count.
    gate.on("delivery:gap", ({ patterns, repairing }) => repairing && patterns.includes(PATTERN) && this.#load.reload(), this);
  }

  read() {
    const { items, unread, mutes, ...before } = this.#snapshot;
    const { status: is, error } = this.#load;
    const status = is === "closed" ? "behind" : is;
    const now = { hasMore: this.#items.before !== null, status, error };
    const isSame = now.hasMore === before.hasMore && status === before.status && error === before.error;
    if (this.#hasNews || !isSame) this.#snapshot = { ...(this.#hasNews ? this.#items.view() : { items, unread, mutes }), ...now };
    this.#hasNews = false;
    return this.#snapshot;
  }

  end() {
    this.#load.close();
    this.#gate.off(null, null, this);
  }

  /** Return the newest page. */
  async #read() {
    try {
      await this.#gate.subscribed(PATTERN);
      return await this.#gate._request(INBOX, { limit: Math.min(MOST, Math.max(this.#pageSize, this.#items.size)) });
    } catch (/** @type {any} */ error) {
      // The load reports the refusal of its pattern itself.
      return Promise.reject(error.code === "disconnected" || error === this.#load.error ? undefined : error);
    }
  }

  async loadMore() {
    const { before } = this.#items;
    if (before === null) return;
    const taken = this.#load._hold();
    try {
      const page = await this.#gate._request(INBOX, { before, limit: this.#pageSize });
      if (this.#items.append(page, before)) this.#news();
    } finally {
      taken();
    }
  }

  /** @param {HeadgateEvent} event */
  #take(event) {
    if (!this.#items.take(event)) this.#load.reload();
    this.#news();
    const { added } = this.#items;
    if (!added || added.at <= this.#alertedAt || isMuted(this.#items.mutes, added.kind, "page")) return;
    this.#alertedAt = added.at;
    this.#alerts.trigger("alert", added);
  }

  /** @param {string} id @param {Change} change */
  begin(id, change) {
    this.#items.begin({ id, change });
    this.#news();
  }

  /** @param {string} id @param {Receipt} receipt */
  confirm(id, receipt) {
    if (!this.#items.confirm(id, receipt)) this.#load.reload();
    this.#news();
  }

  /** @param {string} id */
  fail(id) {
    this.#items.fail(id);
    this.#news();
  }

  #news() {
    this.#hasNews = true;
    this.#changed();
  }
}
