/**
 * An entry of the outbox: one publish, its states, the steps from each to the next, and which step is due. Pure functions, no I/O.
 *
 * An entry that was sent without an answer may be in the log. Sending it again under its id is safe while Redis remembers the id (log.lua: 300 s (less at a
 * high rate), and the newest 65,536 events at any rate). After that another try might publish it twice, so there is none, and the publisher is notified.
 *
 * An entry with a receipt is kept for a minute. If the log begins another epoch in that time, it may have lost the event, and then also the id, because
 * both are written in one step. So the entry is sent once more under its id. The answer is the receipt that it has, or a new one.
 *
 * @typedef {"queued" | "sending" | "doubtful" | "resending" | "published" | "kept" | "checking" | "dropped" | "refused" | "expired" | "discarded" | "unknown"} EntryState
 * @typedef {"send" | "resend" | "check" | "confirm" | "keep" | "drop" | "refuse" | "hold" | "doubt" | "expire" | "discard" | "forget"} EntryStep
 *
 * @typedef {object} Entry as stored
 * @property {number} key the order in the outbox, given by the store
 * @property {EntryState} state
 * @property {string} tab the page that publishes it and is notified
 * @property {string} ticket the name of its promise in that page
 * @property {number} owner the number of the user among the users of that page; an entry of an earlier one is not sent
 * @property {string} id
 * @property {string} topic
 * @property {any} data
 * @property {number} bytes of the data as JSON
 * @property {number} expiresMs wall clock
 * @property {number} [sentMs] wall clock, the first send that may have arrived
 * @property {number} [sentOffset] an offset of the log before that send
 * @property {import("../gate.js").Receipt} [receipt] of a published entry
 * @property {number} [receiptMs] wall clock, when that receipt came
 * @property {import("../gate.js").Receipt} [replaces] the publisher's earlier receipt, of an event that the log has lost
 * @property {string | undefined} [knownIn] the last epoch in which the event is known to be in the log
 * @property {{ code: string, parts: Record<string, any>, retry: boolean, message: string }} [error] of a failed entry
 *
 * @typedef {object} View
 * @property {number} nowMs wall clock
 * @property {number} owner the present user of this page
 * @property {number} offset an offset that the log has reached
 * @property {string | undefined} [epoch] of the log, as the gateway reported it; undefined without a connection
 * @property {boolean} isReady whether something can be sent now
 * @property {boolean} [isUnwanted] whether the application has discarded it
 */

/** How long, and for how many events, an id certainly counts. Both are well below what Redis keeps, because two clocks are compared. */
export const REMEMBERED_MS = 240_000;
export const REMEMBERED_EVENTS = 32_768;
/** How long a receipt is kept while the log continues in its epoch. It is longer than a lost end reaches back. */
export const KEPT_MS = 60_000;

/**
 * `send`, `resend`, `check`: a request is sent · `confirm`: a new receipt has come · `keep`: the publisher has the receipt, and the log has the event ·
 * `drop`: the receipt need not be watched any longer · `refuse`: it will not be published · `hold`: it was not published, and may be later · `doubt`: no
 * answer came · `expire`: its time is over · `discard`: the application has discarded it · `forget`: it may be in the log, and is not sent again.
 *
 * The refusal of a second try says nothing about the first.
 * @type {Record<EntryState, Partial<Record<EntryStep, EntryState>>>}
 */
export const ENTRY = {
  queued: { send: "sending", expire: "expired", discard: "discarded", refuse: "refused" },
  sending: { confirm: "published", refuse: "refused", hold: "queued", doubt: "doubtful" },
  doubtful: { resend: "resending", forget: "unknown" },
  resending: { confirm: "published", refuse: "unknown", hold: "doubtful", doubt: "doubtful" },
  published: { keep: "kept" },
  kept: { check: "checking", forget: "unknown", drop: "dropped" },
  checking: { keep: "kept", confirm: "published", refuse: "unknown", hold: "kept", doubt: "kept" },
  dropped: {},
  refused: {},
  expired: {},
  discarded: {},
  unknown: {},
};

/**
 * Return the entry after a step.
 * @param {Entry} entry @param {EntryStep} step @param {Partial<Entry>} [more]
 * @returns {Entry}
 * @throws {Error} the table has no such step here
 */
export function take(entry, step, more) {
  const state = ENTRY[entry.state][step];
  if (!state) throw new Error(`headgate: no step "${step}" from "${entry.state}"`);
  return { ...entry, ...more, state };
}

/**
 * Return a sent entry after its receipt: `kept` if its publisher has this receipt already, else `published`.
 * @param {Entry} entry @param {import("../gate.js").Receipt} receipt
 * @param {{ sentMs: number, epoch: string | undefined, nowMs: number }} times when it was sent, the epoch that was known then, and the present time
 */
export function confirm(entry, receipt, { sentMs, epoch, nowMs }) {
  const { receipt: replaces } = entry;
  // A new event in the log has written its id again.
  const known = receipt.duplicate === false ? { knownIn: receipt.epoch, sentMs, sentOffset: receipt.offset - 1 } : { knownIn: epoch };
  if (replaces?.epoch === receipt.epoch && replaces.offset === receipt.offset) return take(entry, "keep", known);
  return take(entry, "confirm", { ...known, receipt, replaces, receiptMs: nowMs });
}

/** Return whether the fate of an entry is known. @param {Entry} entry */
export const isSettled = ({ state }) => !["queued", "sending", "doubtful", "resending"].includes(state);

/** Return whether an outcome must be reported to the publisher. @param {Entry} entry */
export const isToTell = ({ state, error }) => state === "published" || error !== undefined;

/** Return whether a request may be under way. @param {Entry} entry */
export const isUnderWay = ({ state }) => ["sending", "resending", "checking"].includes(state);

/** Return whether only its receipt is watched. @param {Entry} entry */
export const isKept = ({ state }) => state === "kept" || state === "checking";

/** Return whether the log may have lost the event since its receipt came. @param {Entry} entry @param {Pick<View, "epoch">} view */
export const isDoubted = ({ state, knownIn }, { epoch }) => state === "kept" && epoch !== undefined && epoch !== knownIn;

/**
 * Return the due step of a waiting entry and its reason, or undefined.
 * @param {Entry} entry @param {View} view
 * @returns {{ step: EntryStep, why?: string } | undefined}
 */
export function due(entry, view) {
  const { nowMs, owner, isReady, isUnwanted } = view;
  if (entry.state === "kept") return dueOfKept(entry, view);
  if (isSettled(entry)) return undefined;
  const isFirst = entry.state === "queued";
  if (entry.owner !== owner) return { step: isFirst ? "refuse" : "forget", why: "another_user" };
  if (isUnwanted) return { step: isFirst ? "discard" : "forget", why: "discarded" };
  if (nowMs >= entry.expiresMs) return { step: isFirst ? "expire" : "forget", why: "expired" };
  if (isFirst) return isReady ? { step: "send" } : undefined;
  if (!isRemembered(entry, view)) return { step: "forget", why: "id_forgotten" };
  return isReady ? { step: "resend" } : undefined;
}

/** @param {Entry} entry @param {View} view @returns {ReturnType<typeof due>} */
function dueOfKept(entry, view) {
  const { nowMs, owner, epoch, isReady, isUnwanted } = view;
  const ageMs = nowMs - (entry.receiptMs ?? 0);
  const isYoung = ageMs >= 0 && ageMs < KEPT_MS;
  if (isUnwanted) return { step: "drop" };
  if (isDoubted(entry, view)) {
    if (entry.owner !== owner) return { step: "forget", why: "another_user" };
    if (!isRemembered(entry, view)) return { step: "forget", why: "id_forgotten" };
    return isReady ? { step: "check" } : undefined;
  }
  // Without a connection the epoch of the log is unknown.
  return epoch === undefined || (isYoung && isRemembered(entry, view)) ? undefined : { step: "drop" };
}

/** Return when a waiting entry has a step due even if nothing can be sent. @param {Entry} entry */
export function dueMs({ state, expiresMs, sentMs = 0 }) {
  return state === "queued" ? expiresMs : Math.min(expiresMs, sentMs + REMEMBERED_MS);
}

/** Return whether the id certainly counts. It does not if the clock went backwards. @param {Entry} entry @param {Pick<View, "nowMs" | "offset">} view */
export function isRemembered({ sentMs = 0, sentOffset }, { nowMs, offset }) {
  const ageMs = nowMs - sentMs;
  return ageMs >= 0 && ageMs < REMEMBERED_MS && offset - (sentOffset ?? offset) < REMEMBERED_EVENTS;
}

/** Return the keys of the oldest receipts for which there is no room. @param {Entry[]} entries in order @param {{ maxEvents: number, maxBytes: number }} bounds */
export function surplusOf(entries, bounds) {
  const room = { ...bounds };
  const surplus = new Set();
  for (const { key, bytes } of entries.filter(isKept).reverse()) {
    room.maxEvents--;
    room.maxBytes -= bytes;
    if (Math.min(room.maxEvents, room.maxBytes) < 0) surplus.add(key);
  }
  return surplus;
}
