/**
 * The entry point `headgate/inbox`: the inbox of the gate's user, the same in every tab and on every device.
 *
 * In: pages that the gateway answers, events of `users.me.inbox.#`, actions of the application. Out: snapshots {items, unread, mutes, hasMore,
 * status, error} for frameworks, and a publish on `users.me.inbox` for each action. An action shows at once, and is taken back when it is refused.
 *
 * It follows while it has listeners. The inbox is read again when events may be missing: after a connection that did not resume, or after a gap.
 *
 * @import { Gate, HeadgateEvent, Receipt } from "../gate.js"
 * @import { Source, Store } from "../stores/snapshot-store.js"
 * @import { Change, Channel, Item, Mutes } from "./items.js"
 *
 * @typedef {"loading" | "behind" | "current" | "failed"} InboxStatus as of a live collection
 * @typedef {{ readonly items: readonly Item[], readonly unread: number, readonly mutes: Mutes, readonly hasMore: boolean, readonly status: InboxStatus, readonly error: any }} InboxSnapshot
 * @typedef {{ publish: (topic: string, data: unknown, options: { id: string }) => Promise<Receipt> }} Publishing
 */
import { newId } from "../base/new-id.js";
import { startTimer } from "../base/timer.js";
import { INBOX } from "../language/protocol.js";
import { checkPattern, Dispatcher, HeadgateError, matches } from "../index.js";
import { createStore } from "../stores/snapshot-store.js";
import { Items } from "./items.js";

const PATTERN = "users.me.inbox.#";
const TOPIC = "users.me.inbox";
/** The most items of an answer, and ids of a change. */
const MOST = 100;
const RETRY_MS = 2000;
/** Events that are kept while an answer is awaited; beyond that it is asked for once more. */
const MAX_KEPT = 1000;

/** @type {import("../language/options.js").Table} */
const OPTIONS = { pageSize: [[1, MOST, true], 20], outbox: ["object"] };
/** @type {readonly Channel[]} */
const CHANNELS = ["mail", "page", "push"];

/**
 * Make the inbox of a gate's user.
 * @param {Gate} gate
 * @param {{ pageSize?: number, outbox?: Publishing }} [options] `outbox`: of headgate/offline, which keeps actions while there is no connection
 * @throws {TypeError} an option that breaks its rule
 */
export function createInbox(gate, options = {}) {
  const { pageSize, outbox = gate } = gate._checkOptions("createInbox", OPTIONS, options);
  const alerts = new Dispatcher();
  /** @type {InboxSource | undefined} */
  let source;
  /** @type {InboxSnapshot} */
  const first = Object.freeze({ items: [], unread: 0, mutes: {}, hasMore: false, status: "loading", error: null });
  /** @type {Store<InboxSnapshot>} */
  const store = createStore(first, (changed) => {
    source = new InboxSource(gate, pageSize, first, changed, alerts);
    return source;
  });

  /** @param {Change} change */
  async function act(change) {
    const [mine, id] = [source, newId()];
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
    const ids = typeof given === "string" ? [given] : [...given];
    const parts = Array.from({ length: Math.ceil(ids.length / MOST) }, (_, nth) => ids.slice(nth * MOST, (nth + 1) * MOST));
    await Promise.all(parts.map((part) => act({ op, ids: part })));
  }

  return {
    ...store,
    /**
     * Call a listener with each item that arrives, while the inbox is followed, and is not muted in pages; return the function that ends it.
     * @param {(item: Item) => void} listener
     */
    onAlert(listener) {
      // Its own function: one that listens twice ends each by itself.
      const own = (/** @type {Item} */ item) => listener(item);
      alerts.on("alert", own);
      return () => void alerts.off("alert", own);
    },
    /** @param {string} kind @param {Channel} [channel] */
    isMuted: (kind, channel = "page") => isMuted(store.getSnapshot().mutes, kind, channel),
    /**
     * Mute a pattern of kinds on exactly these channels, for this user everywhere.
     * @param {string} pattern @param {readonly Channel[]} [channels] @returns {Promise<void>} as of markRead
     */
    async mute(pattern, channels = CHANNELS) {
      if (!channels.length || !channels.every((each) => CHANNELS.includes(each))) throw new HeadgateError("invalid_request", { reason: `channels: expected some of ${CHANNELS.join(", ")}` });
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
    /** Bring older items. @returns {Promise<void>} rejected with HeadgateError */
    loadMore: async () => source?.loadMore(),
    /** @param {string | readonly string[]} ids @returns {Promise<void>} settled by the gateway's answer; rejected with HeadgateError, when it is taken back */
    markRead: (ids) => actOn("read", ids),
    /** @param {string | readonly string[]} ids */
    markUnread: (ids) => actOn("unread", ids),
    /** @param {string | readonly string[]} ids */
    archive: (ids) => actOn("archive", ids),
    /** Mark as read all items up to the newest one that is shown. @returns {Promise<void>} */
    async markAllRead() {
      const [newest] = store.getSnapshot().items;
      if (newest) await act({ op: "read_all", up_to: newest.at, epoch: gate.state.epoch });
    },
  };
}

/**
 * Show the unread count in front of a page's title; returns the function that ends it.
 * @param {{ subscribe: (listener: () => void) => () => void, readonly unread: number }} inbox
 * @param {{ title: string }} [page]
 */
export function badgeTitle(inbox, page = document) {
  let { title } = page;
  let shown = title;
  const show = () => {
    // Another one: the application has gone to another of its views.
    if (page.title !== shown) title = page.title;
    page.title = inbox.unread ? `(${inbox.unread}) ${title}` : title;
    // As the page has it, which drops spaces.
    shown = page.title;
  };
  const leave = inbox.subscribe(show);
  return () => {
    leave();
    if (page.title === shown) page.title = title;
  };
}

/** @param {Mutes} mutes @param {string} kind @param {Channel} channel */
function isMuted(mutes, kind, channel) {
  return Object.entries(mutes).some(([pattern, channels]) => channels.includes(channel) && matches(pattern, kind));
}

/** @implements {Source<InboxSnapshot>} */
class InboxSource {
  #gate;
  #pageSize;
  #changed;
  #alerts;
  #snapshot;
  #items = new Items();
  #listener = new Dispatcher();
  #isEnded = false;
  #isLoading = false;
  /** Events may be missing in what is known. */
  #isBehind = true;
  /** @type {any} */
  #failure = null;
  /** @type {HeadgateEvent[]} */
  #kept = [];
  /** Answers that are awaited, of pages below too. */
  #awaited = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #hasNews = false;

  /** @param {Gate} gate @param {number} pageSize @param {InboxSnapshot} first @param {() => void} changed @param {Dispatcher} alerts */
  constructor(gate, pageSize, first, changed, alerts) {
    this.#gate = gate;
    this.#pageSize = pageSize;
    this.#snapshot = first;
    this.#changed = changed;
    this.#alerts = alerts;
    this.#listener.listenTo(gate, {
      [PATTERN]: (/** @type {any} */ _data, /** @type {HeadgateEvent} */ event) => this.#take(event),
      "connection:up": (/** @type {{ resumed: boolean | null }} */ { resumed }) => (resumed && !this.#isBehind && !this.#isLoading) || this.load(),
      "delivery:gap": (/** @type {{ patterns?: string[] }} */ { patterns }) => (!patterns?.length || patterns.includes(PATTERN)) && this.load(),
      // It was refused, or found no place, and may have one now.
      [`subscription:${PATTERN}`]: () => this.#failure && !this.#isLoading && this.load(),
    });
    void this.load();
  }

  read() {
    const { items, unread, mutes, ...before } = this.#snapshot;
    /** @type {InboxStatus} */
    const status = this.#failure ? "failed" : !this.#items.isKnown ? "loading" : this.#isBehind ? "behind" : "current";
    const now = { hasMore: this.#items.before !== null, status, error: this.#failure };
    const isSame = now.hasMore === before.hasMore && now.status === before.status && now.error === before.error;
    if (this.#hasNews || !isSame) this.#snapshot = { ...(this.#hasNews ? this.#items.view() : { items, unread, mutes }), ...now };
    this.#hasNews = false;
    return this.#snapshot;
  }

  end() {
    this.#isEnded = true;
    clearTimeout(this.#timer);
    this.#listener.stopListening();
  }

  /** Read the newest page, once the subscription is active, and once more if something was lost in between. */
  async load() {
    this.#isBehind = true;
    // The answer that comes shows what these say, or the log has lost them.
    this.#kept = [];
    this.#changed();
    clearTimeout(this.#timer);
    if (this.#isLoading) return;
    this.#isLoading = true;
    while (this.#isBehind && !this.#isEnded) {
      this.#isBehind = false;
      try {
        await this.#gate.subscribed(PATTERN);
        const limit = Math.min(MOST, Math.max(this.#pageSize, this.#items.size));
        // One that was outdated meanwhile would take away what it does not know yet.
        await this.#ask({ limit }, (page) => !this.#isBehind && this.#items.replace(page));
        this.#failure = null;
      } catch (/** @type {any} */ error) {
        if (this.#isEnded) return;
        this.#failure = error;
        // The connection has changed in between.
        if (this.#isBehind) continue;
        this.#isBehind = true;
        if (error.retry) this.#timer = startTimer(() => void this.load(), RETRY_MS * (0.5 + Math.random()));
        break;
      }
    }
    this.#isLoading = false;
    this.#changed();
  }

  async loadMore() {
    const { before } = this.#items;
    if (before === null) return;
    await this.#ask({ before, limit: this.#pageSize }, (page) => this.#items.append(page, before));
  }

  /** Ask for a page. Events that come before the answer are applied at once, and again after it. @param {object} body @param {(page: any) => boolean} use returns whether it is shown */
  async #ask(body, use) {
    this.#awaited++;
    try {
      const page = await this.#gate._request(INBOX, body);
      if (this.#isEnded || !use(page)) return;
      for (const event of this.#kept) this.#apply(event);
      this.#news();
    } finally {
      if (!--this.#awaited) this.#kept = [];
    }
  }

  /** @param {HeadgateEvent} event */
  #take(event) {
    if (this.#awaited && this.#kept.push(event) > MAX_KEPT) void this.load();
    const added = this.#items.isKnown ? this.#apply(event) : null;
    this.#news();
    if (!added || event.replayed || isMuted(this.#items.mutes, added.kind, "page")) return;
    this.#alerts.trigger("alert", added);
  }

  /** @param {HeadgateEvent} event */
  #apply(event) {
    if (!this.#items.take(event)) void this.load();
    return this.#items.added;
  }

  /** @param {string} id @param {Change} change */
  begin(id, change) {
    this.#items.begin({ id, change });
    this.#news();
  }

  /** @param {string} id @param {Receipt} receipt */
  confirm(id, receipt) {
    if (!this.#items.confirm(id, receipt)) void this.load();
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
