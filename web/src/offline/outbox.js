/**
 * The outbox: publishes of a page, kept while there is no connection, and sent one after the other.
 *
 * In: `publish` from the application, the gate's status, notices of other tabs. Out: `gate.publish`, and a report of each entry's outcome to the page that
 * published it, or, if that page has ended, to the page that sends.
 *
 * It promises: entries of one queue are sent in order, one at a time, and by one page at a time. A refused entry does not delay the others, but one that
 * must wait does. An entry reported as published is in the log once. Any other fate is reported too, and such an entry is not in the log, except
 * that one with `outcome_unknown` may be, once. Each step is stored before it counts, so an entry is stored as sent before it is sent. If the log has lost
 * an event with its end, and its receipt was younger than a minute, it is sent again, after those sent since.
 *
 * @import { Entry, EntryStep } from "./entry.js"
 * @import { Store } from "./memory-store.js"
 *
 * @typedef {object} OutboxGate the part of a gate that an outbox uses
 * @property {{ user: string | null, position: string, epoch: string | null, offset: number | null, limits: { maxPayloadBytes?: number } }} state
 * @property {string} status
 * @property {boolean} isUp
 * @property {(topic: string, data: unknown, options: { id: string }) => Promise<import("../gate.js").Receipt>} publish
 * @property {(name: string, callback: (...args: any[]) => void, context: object) => unknown} on
 * @property {(name: string, callback: (...args: any[]) => void) => unknown} off
 * @property {(name: string, ...args: any[]) => unknown} trigger
 * @property {(name: string) => boolean} _heard
 * @property {typeof import("../language/options.js").checkOptions} _checkOptions
 *
 * @typedef {object} Clock
 * @property {() => number} nowMs wall clock
 * @property {(act: () => void, delayMs: number) => () => void} after returns the function that cancels it
 *
 * @typedef {{ id: string, topic: string, data: any, restored: boolean }} Notice `restored`: whether another page has published it
 */
import { delayAfterMs } from "../base/backoff.js";
import { Machine } from "../base/machine.js";
import { newId } from "../base/new-id.js";
import { report } from "../base/report.js";
import { TEXTS } from "../language/options.js";
import { checkPayload, checkTopic, HeadgateError } from "../index.js";
import { confirm, due, dueMs, isDoubted, isKept, isRemembered, isSettled, isToTell, isUnderWay, surplusOf, take } from "./entry.js";
import { LEFT } from "./memory-store.js";

/** The longest time between two passes, because the notice that should have started one may be lost. */
const PASS_MS = 5000;
/** Time before a deferred publish is tried again, unless the gateway names one. */
const RETRY_MS = 2000;
const DAY_MS = 86_400_000;
/** How long a publish may wait. @type {[rule: import("../language/options.js").Rule, fallback?: number]} */
export const MAX_AGE_MS = [[1, 366 * DAY_MS], DAY_MS];
/** Refusals that do not concern the event itself. It was not published, and may be later. */
const PASSING = ["limit_reached", "unauthorized", "closed"];

/**
 * A pass visits each entry once. A `wake` during a pass (`behind`) requests another one after it.
 * @type {Record<"resting" | "passing" | "behind" | "closed", Partial<Record<"wake" | "end" | "close", "resting" | "passing" | "behind" | "closed">>>}
 */
export const PASSES = {
  resting: { wake: "passing", close: "closed" },
  passing: { wake: "behind", end: "resting", close: "closed" },
  behind: { wake: "behind", end: "passing", close: "closed" },
  closed: { wake: "closed", end: "closed" },
};

/** @type {Clock} */
export const CLOCK = {
  nowMs: () => Date.now(),
  after(act, delayMs) {
    const timer = setTimeout(act, delayMs);
    return () => clearTimeout(timer);
  },
};

/**
 * @param {OutboxGate} gate
 * @param {Store} store
 * @param {{ user?: string | undefined, maxAgeMs: number, opened?: Promise<Store> | undefined }} options `user`: nothing is sent as another user; `opened` replaces the
 *   store, if it can be opened
 * @param {Clock} [clock]
 */
export function runOutbox(gate, store, { user, maxAgeMs, opened }, clock = CLOCK) {
  const life = new Machine(PASSES, "resting");
  /** Promises of this page, by ticket. `isKept`: the store has confirmed the entry.
   * @type {Map<string, { resolve: (receipt: any) => void, reject: (error: unknown) => void, isKept: boolean, id: string, topic: string, data: any }>} */
  const waiting = new Map();
  /** Tickets of reported entries still in the store. @type {Set<string>} */
  const reported = new Set();
  /** Entries to give up, by key. @type {Map<number, { ended: Promise<void>, resolve: () => void, reject: (error: unknown) => void }>} */
  const unwanted = new Map();
  let tickets = 0;
  /** Counts the users of this page, if the option `user` is missing. */
  let owner = 0;
  /** @type {string | null | undefined} */
  let present = user;
  /** The position in the latest welcome. */
  let head = { epoch: "", offset: 0 };
  let isHeld = false;
  let cancelHold = () => {};
  let cancelPass = () => {};
  /** Whether the storage has failed, and this was reported. */
  let isReported = false;

  const isUp = () => gate.isUp && gate.state.user === present;
  const isAnother = () => user !== undefined && gate.isUp && gate.state.user !== user;
  function view(/** @type {boolean} */ isFree) {
    const nowMs = clock.nowMs();
    const { position, epoch, offset } = gate.state;
    // If the log has lost its end, the position is that of the welcome. The welcome does not count in a later epoch.
    const at = position === "announced" ? head : { epoch, offset: Math.max(offset ?? 0, epoch === head.epoch ? head.offset : 0) };
    return { nowMs, owner, offset: at.offset, epoch: (isUp() && at.epoch) || undefined, isReady: isFree && isUp() && !isHeld };
  }

  /** @param {{ user?: string | null, epoch: string, offset: number, limits: any }} welcome */
  function connected(welcome) {
    head = welcome;
    isHeld = false;
    cancelHold();
    if (user === undefined) {
      if (present !== undefined && present !== gate.state.user) owner++;
      present = gate.state.user;
    }
    wake();
  }

  const watched = (/** @type {{ status: string }} */ { status }) => status === "closed" && close();

  /** Process the entries, now or after the current pass. */
  async function wake() {
    const rests = life.is("resting");
    life.take("wake");
    if (!rests) return;
    let nextMs = PASS_MS;
    do {
      try {
        await ready;
        nextMs = await store.alone(pass);
        isReported = false;
      } catch (error) {
        // The storage has failed. The next pass tries again.
        if (!life.is("closed") && !isReported && error !== LEFT) report(error);
        isReported = error !== LEFT;
      }
      life.take("end");
    } while (life.is("passing"));
    cancelPass();
    if (life.is("resting") && nextMs < Infinity) cancelPass = clock.after(wake, Math.max(0, Math.min(nextMs, PASS_MS)));
  }

  /** Take every due step. Return the time until the next one; Infinity: nothing is left. */
  async function pass() {
    let isFree = true;
    let nextMs = Infinity;
    const gone = new Set(unwanted.keys());
    const lost = new Set([...waiting].flatMap(([ticket, { isKept }]) => (isKept ? [ticket] : [])));
    const entries = await store.entries();
    // After the entries, because a page that has added one lives, or has ended.
    const living = await store.living();
    for (const entry of entries) {
      const { key, tab, ticket } = entry;
      gone.delete(key);
      if (tab !== store.tab) continue;
      lost.delete(ticket);
      if (!isKept(entry)) continue;
      // Another page has reported it while this one was in the back/forward cache.
      waiting.get(ticket)?.resolve(entry.receipt);
      waiting.delete(ticket);
    }
    // Other pages have ended these before this one was alone.
    for (const key of gone) givenUp(key);
    for (const ticket of lost) tellLost(ticket);
    const surplus = surplusOf(entries, store.bounds);
    for (let entry of entries) {
      const isOurs = entry.tab === store.tab || !living.has(entry.tab);
      // Only one page sends at a time, so the page that began this request has ended.
      if (isUnderWay(entry)) entry = await keep(take(entry, "doubt"));
      for (;;) {
        if (life.is("closed")) return Infinity;
        const next = due(own(entry), { ...view(isFree), isUnwanted: unwanted.has(entry.key) || surplus.has(entry.key) });
        if (!next) break;
        entry = await advance(entry, next);
        // The outbox was closed before the answer. What is stored stays unchanged.
        if (life.is("closed")) return Infinity;
        // An error is stored before it is reported, or a later page could report another outcome. A receipt comes again by the same id.
        const isOthers = isToTell(entry) && !isOurs;
        if (entry.error || isOthers) await store.put(entry);
        if (isOthers) store.notify("settled");
      }
      // The order is kept, so later entries wait too.
      if (!isSettled(entry) || isDoubted(entry, view(isFree))) isFree = false;
      if (!isSettled(entry)) nextMs = Math.min(nextMs, dueMs(entry) - clock.nowMs());
      // Its receipt is watched, or its page must report it and may end before that.
      else if (entry.state !== "dropped" && !(isKept(entry) && !isUp())) nextMs = Math.min(nextMs, PASS_MS);
      const isGone = isOurs && isToTell(entry) ? await tell(entry) : entry.error || entry.state === "dropped";
      if (isGone) givenUp(entry.key);
    }
    return nextMs;
  }

  /** Give up an entry in the next pass. @param {number} key */
  function giveUp(key) {
    if (!unwanted.has(key)) {
      const ending = /** @type {any} */ ({});
      ending.ended = new Promise((resolve, reject) => Object.assign(ending, { resolve, reject }));
      unwanted.set(key, ending);
    }
    return unwanted.get(key)?.ended;
  }

  /** An entry that was to be given up has ended. @param {number} key */
  function givenUp(key) {
    unwanted.get(key)?.resolve();
    unwanted.delete(key);
  }

  /** Entries of other pages count as the present user's, because their `owner` is counted there. @param {Entry} entry @returns {Entry} */
  const own = (entry) => (store.outlives ? { ...entry, owner } : entry);

  /** @param {Entry} entry @param {{ step: EntryStep, why?: string }} next */
  async function advance(entry, { step, why }) {
    if (step === "send" || step === "resend" || step === "check") return send(entry, step);
    if (step === "drop") {
      await store.remove(entry);
      return take(entry, step);
    }
    const { id, topic } = entry;
    const code = { refuse: "unauthorized", expire: "expired", discard: "discarded" }[/** @type {string} */ (step)] ?? "outcome_unknown";
    return take(entry, step, { error: plain(new HeadgateError(code, { id, topic, reason: why })) });
  }

  /** @param {Entry} entry @param {"send" | "resend" | "check"} step */
  async function send(entry, step) {
    const { nowMs, offset, epoch } = view(true);
    // If the log has lost its end, the event may be new.
    const first = step === "send" ? { sentMs: nowMs, sentOffset: offset } : { sentOffset: Math.min(entry.sentOffset ?? offset, offset) };
    const sent = await keep(take(entry, step, first));
    // The connection may have changed while the entry was written.
    if (life.is("closed") || !isUp() || !isRemembered(sent, view(true))) return keep(take(sent, "hold"));
    try {
      const { id, topic, data } = sent;
      const confirmed = confirm(sent, await gate.publish(topic, data, { id }), { sentMs: nowMs, epoch, nowMs: clock.nowMs() });
      return isKept(confirmed) ? keep(confirmed) : confirmed;
    } catch (fault) {
      const error = fault instanceof HeadgateError ? fault : new HeadgateError("refused", { reason: String(fault) }, false, undefined, fault);
      const isPassing = PASSING.includes(error.code) && (error.retry || error.code !== "limit_reached");
      // The outcome of an earlier try stays unknown.
      if (!isPassing && !error.retry && error.code !== "outcome_unknown") return take(sent, "refuse", { error: plain(step === "send" ? error : unknownFor(sent, error.code)) });
      return pause(await keep(take(sent, isPassing ? "hold" : "doubt")), delayAfterMs(error.parts.retryAfterS, RETRY_MS));
    }
  }

  /** Send nothing for some time, by a timer, because the user may set the clock. @param {Entry} entry @param {number} ms */
  function pause(entry, ms) {
    cancelHold();
    isHeld = !life.is("closed");
    if (isHeld) {
      cancelHold = clock.after(() => {
        isHeld = false;
        wake();
      }, ms);
    }
    return entry;
  }

  /** @param {Entry} entry */
  async function keep(entry) {
    await store.put(entry);
    return entry;
  }

  /** Report the fate of an entry once, and remove it, or keep its receipt. Return whether it was removed. @param {Entry} entry */
  async function tell(entry) {
    const { id, topic, data, receipt, replaces, error, ticket, tab } = entry;
    const name = `${tab} ${ticket}`;
    if (!reported.has(name)) {
      reported.add(name);
      const isOurs = tab === store.tab;
      const promise = isOurs ? waiting.get(ticket) : undefined;
      if (isOurs) waiting.delete(ticket);
      const notice = { id, topic, data, restored: !isOurs };
      if (error) {
        const fault = new HeadgateError(error.code, error.parts, error.retry, error.message);
        promise?.reject(fault);
        if (!promise && !gate._heard("publish:refused")) report(fault);
        gate.trigger("publish:refused", { ...notice, error: fault });
      } else {
        promise?.resolve(receipt);
        gate.trigger("publish:receipt", { ...notice, receipt, replaces });
      }
    }
    const isGone = Boolean(error) || unwanted.has(entry.key);
    await (isGone ? store.remove(entry) : store.put(take(entry, "keep")));
    reported.delete(name);
    return isGone;
  }

  /** The storage no longer has a publish of this page, because the user has cleared it. Another page may have sent it. @param {string} ticket */
  function tellLost(ticket) {
    const publish = waiting.get(ticket);
    if (!publish) return;
    waiting.delete(ticket);
    const { id, topic, data } = publish;
    const error = unknownFor(publish, "storage_cleared");
    publish.reject(error);
    gate.trigger("publish:refused", { id, topic, data, restored: false, error });
  }

  /** Report what another tab has sent for this one, without waiting for a pass, because the other tab may be alone for long. */
  async function tellOurs() {
    for (const entry of await store.entries()) if (isToTell(entry) && entry.tab === store.tab) await tell(entry);
  }

  function close() {
    if (!life.offer("close")) return;
    cancelPass();
    cancelHold();
    gate.off("connection:up", connected);
    gate.off("delivery:gap", wake);
    gate.off("status:change", watched);
    void abandon();
  }

  /** Reject the promises of this page, because no further report follows. */
  async function abandon() {
    const sent = store.outlives ? [] : (await store.entries()).filter(({ state }) => state !== "queued");
    for (const { ticket, ...entry } of sent) {
      waiting.get(ticket)?.reject(unknownFor(entry, "closed"));
      waiting.delete(ticket);
    }
    for (const { reject } of [...waiting.values(), ...unwanted.values()]) reject(new HeadgateError("closed", { kept: store.outlives }));
    waiting.clear();
    unwanted.clear();
    store.close();
  }

  // Only `close` ends these handlers (dispatcher.js).
  const part = { _isPart: true };
  gate.on("connection:up", connected, part);
  gate.on("delivery:gap", wake, part);
  gate.on("status:change", watched, part);
  const ready = opened?.then(
    (better) => {
      if (life.is("closed")) return better.close();
      store = better;
      store.listen(() => {
        tellOurs().catch((error) => error !== LEFT && report(error));
        wake();
      });
    },
    (error) => console.warn(`headgate: the outbox ends with this page: ${error}`),
  );
  if (gate.status === "closed") close();
  else if (gate.isUp) connected(/** @type {any} */ (gate.state));
  else wake();

  return {
    /**
     * Publish an event now, or when there is a connection.
     * @param {string} topic
     * @param {unknown} data JSON
     * @param {{ id?: string, maxAgeMs?: number }} [options]
     * @returns {Promise<import("../gate.js").Receipt>} resolved when it is in the log; rejected with TypeError for a wrong option, or with HeadgateError: at once for an
     *   invalid name or payload, a full outbox or a failed storage, and later with its fate
     */
    async publish(topic, data, options = {}) {
      const { id = newId(), maxAgeMs: lifeMs } = gate._checkOptions("outbox.publish", { id: ["string"], maxAgeMs: [MAX_AGE_MS[0], maxAgeMs] }, options);
      if (life.is("closed")) throw new HeadgateError("closed", { kept: false });
      checkTopic(topic);
      const plainData = checkPayload(data, gate.state.limits.maxPayloadBytes);
      if (isAnother()) throw new HeadgateError("unauthorized", { topic, reason: "another_user" });
      const ticket = String(tickets++);
      const { size: bytes } = new Blob([JSON.stringify(plainData)]);
      /** @type {Promise<import("../gate.js").Receipt>} */
      const fate = new Promise((resolve, reject) => waiting.set(ticket, { resolve, reject, isKept: false, id, topic, data: plainData }));
      // It may be rejected while it is being stored.
      fate.catch(() => {});
      try {
        await ready;
        await store.add({ state: "queued", tab: store.tab, ticket, owner, id, topic, data: plainData, bytes, expiresMs: clock.nowMs() + lifeMs });
      } catch (fault) {
        waiting.delete(ticket);
        throw fault instanceof HeadgateError ? fault : new HeadgateError("storage_failed", { topic, reason: String(fault) }, true, undefined, fault);
      }
      const publish = waiting.get(ticket);
      if (publish) publish.isKept = true;
      if (!life.is("closed")) {
        gate.trigger("publish:queued", { id, topic, data: plainData, restored: false });
        store.notify("added");
        wake();
      }
      return fate;
    },

    /** Return the publishes without an outcome, oldest first. @returns {Promise<Notice[]>} */
    async pending() {
      await ready;
      const entries = (await store.entries()).filter((entry) => !isSettled(entry));
      return entries.map(({ id, topic, data, tab }) => ({ id, topic, data, restored: tab !== store.tab }));
    },

    /**
     * Discard everything that waits now, in all pages that share the outbox, or the publishes with these ids. Each publisher gets `discarded`, or
     * `outcome_unknown` for an entry that was sent without an answer. Receipts are no longer watched. Resolved when nothing of these is stored.
     * @param {string[]} [ids]
     * @returns {Promise<void>} rejected with HeadgateError `closed` if the outbox was closed before
     */
    async discard(ids) {
      gate._checkOptions("outbox.discard", { ids: [TEXTS] }, { ids: ids ?? undefined });
      await ready;
      const entries = (await store.entries()).filter(({ id }) => !ids || ids.includes(id));
      if (life.is("closed")) throw new HeadgateError("closed", { kept: store.outlives });
      const ends = entries.map(({ key }) => giveUp(key));
      wake();
      await Promise.all(ends);
    },

    /** Stop sending. The next page sends what is in IndexedDB. */
    close,
  };
}

/** @param {{ id: string, topic: string }} entry @param {string} reason */
function unknownFor({ id, topic }, reason) {
  return new HeadgateError("outcome_unknown", { id, topic, reason });
}

/** Return an error as stored. @param {HeadgateError} error */
function plain({ code, parts, retry, message }) {
  return { code, parts, retry, message };
}
