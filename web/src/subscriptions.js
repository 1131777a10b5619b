/**
 * Subscriptions: what the application wants, against what the gateway has acknowledged. Pure state, no I/O.
 *
 * In: `want` / `unwant` as first handlers come and last ones leave, `connecting` / `welcomed` / `down` from the connection,
 * `settled` with each acknowledgement. Out: `next()`, the requests that would bring the two into step, one in flight per
 * pattern, so that a quick off-and-on costs at most one request. Nothing is ever sent for a pattern that is settled.
 *
 * @import { Overflow, Since, SubscribeRequest, SubscribeResult, WireError } from "./protocol.js"
 * @typedef {{ name: "subscribe", body: SubscribeRequest } | { name: "unsubscribe", body: { pattern: string } }} Request
 * @typedef {"idle" | "asking" | "active" | "leaving" | "refused"} Standing where the gateway stands, as far as we know
 * @typedef {{ promise: Promise<void>, resolve: () => void, reject: (error: HeadgateError) => void }} Waiter
 *
 * @typedef {object} Record
 * @property {boolean} wanted
 * @property {Overflow} overflow
 * @property {Overflow | null} asked the policy that the gateway was last asked for
 * @property {Since} [since] taken out once the gateway has it
 * @property {Standing} standing
 * @property {HeadgateError | null} error why it was refused
 * @property {Waiter | null} waiter
 */
import { closed, disconnected, HeadgateError } from "./errors.js";
import { OVERFLOW } from "./protocol.js";

export class Subscriptions {
  /** @type {Map<string, Record>} */
  #records = new Map();
  /** @type {Set<string>} sent in the CONNECT that is under way */
  #connecting = new Set();

  /** Return the wanted patterns in order of arrival. */
  wanted() {
    return [...this.#records].filter(([, record]) => record.wanted).map(([pattern]) => pattern);
  }

  /** Return pattern → standing of what is wanted: for display. */
  standings() {
    return Object.fromEntries(this.wanted().map((pattern) => [pattern, /** @type {Record} */ (this.#records.get(pattern)).standing]));
  }

  /**
   * Want a pattern. Wanting it again only ever strengthens its overflow policy: a handler that must not lose events is
   * not made to by another that may.
   * @param {string} pattern
   * @param {{ overflow?: Overflow, since?: Since }} [options]
   */
  want(pattern, { overflow = "catch_up", since } = {}) {
    const known = this.#records.get(pattern);
    if (known?.wanted) {
      if (OVERFLOW.indexOf(overflow) < OVERFLOW.indexOf(known.overflow)) known.overflow = overflow;
      if (since) Object.assign(known, { since, asked: null });
      if (known.standing === "refused") known.standing = "idle";
      return;
    }
    /** @type {Record} */
    const record = known ?? { wanted: true, overflow, asked: null, standing: "idle", error: null, waiter: null };
    Object.assign(record, { wanted: true, overflow, since, error: null });
    if (since) record.asked = null;
    this.#records.set(pattern, record);
  }

  /** @param {string} pattern */
  unwant(pattern) {
    const record = this.#records.get(pattern);
    if (!record) return;
    record.wanted = false;
    this.#answer(record, disconnected(`unsubscribed from '${pattern}' before it was acknowledged`));
    if (record.standing === "idle" || record.standing === "refused") this.#records.delete(pattern);
  }

  /**
   * Return a promise for the acknowledgement of a wanted pattern.
   * @param {string} pattern
   * @returns {Promise<void>} rejected with the refusal
   */
  acknowledged(pattern) {
    const record = this.#records.get(pattern);
    if (!record?.wanted) return Promise.reject(disconnected(`no handler for '${pattern}'`));
    if (record.standing === "active") return Promise.resolve();
    if (record.standing === "refused") return Promise.reject(record.error);
    record.waiter ??= waiter();
    return record.waiter.promise;
  }

  /**
   * Return the requests to send in CONNECT. A connection that resumes carries only what was in force before: a pattern
   * that is new must not be given the past that came before its handler.
   * @param {boolean} resuming
   * @returns {SubscribeRequest[]}
   */
  connecting(resuming) {
    const chosen = [...this.#records].filter(([, r]) => r.wanted && (!resuming || r.asked !== null));
    this.#connecting = new Set(chosen.map(([pattern]) => pattern));
    for (const [, record] of chosen) record.standing = "asking";
    return chosen.map(([pattern, record]) => ask(pattern, record));
  }

  /**
   * Take the gateway's word on what was sent in CONNECT.
   * @param {SubscribeResult[]} results
   * @returns {[string, HeadgateError][]} what was refused
   */
  welcomed(results) {
    /** @type {[string, HeadgateError][]} */
    const refused = [];
    for (const { pattern, ok, error } of results) {
      if (!this.#connecting.delete(pattern)) continue;
      const fault = this.settled({ name: "subscribe", body: { pattern } }, ok ? null : HeadgateError.fromWire(error));
      if (fault) refused.push([pattern, fault]);
    }
    // Left out of the answer: not in force, so ask.
    for (const pattern of this.#connecting) this.#standAt(pattern, "idle");
    this.#connecting.clear();
    return refused;
  }

  /** The connection is gone, and with it every subscription and request. */
  down() {
    this.#connecting.clear();
    for (const pattern of [...this.#records.keys()]) this.#standAt(pattern, "idle");
  }

  /** Ask again for what was refused: the client has another token. */
  retryRefused() {
    for (const [pattern, record] of this.#records) if (record.standing === "refused") this.#standAt(pattern, "idle");
  }

  /** Return whether `next` has something. */
  pending() {
    return this.#outOfStep() !== undefined;
  }

  /**
   * Return the next request that brings wanted and acknowledged into step, and count it as in flight.
   * @returns {Request | null}
   */
  next() {
    const found = this.#outOfStep();
    if (!found) return null;
    const [pattern, record] = found;
    record.standing = record.wanted ? "asking" : "leaving";
    return record.wanted ? { name: "subscribe", body: ask(pattern, record) } : { name: "unsubscribe", body: { pattern } };
  }

  /**
   * Take the outcome of a request.
   * @param {Request} request
   * @param {HeadgateError | null} error
   * @returns {HeadgateError | null} a refusal that the application must hear of
   */
  settled({ name, body: { pattern } }, error) {
    const record = this.#records.get(pattern);
    if (!record) return null;
    if (name === "unsubscribe") {
      // Refused for good means that there is nothing to leave.
      if (!error?.retry) record.asked = null;
      this.#standAt(pattern, error?.retry ? "active" : "idle");
      return null;
    }
    if (!error) {
      record.standing = "active";
      delete record.since;
      this.#answer(record, null);
      return null;
    }
    if (!record.wanted) {
      this.#standAt(pattern, "idle");
      return null;
    }
    record.standing = error.retry ? "idle" : "refused";
    record.asked = null;
    record.error = error;
    if (!error.retry) this.#answer(record, error);
    return error.retry ? null : error;
  }

  /** Forget everything. */
  close() {
    for (const record of this.#records.values()) this.#answer(record, closed());
    this.#records.clear();
    this.#connecting.clear();
  }

  /** @returns {[string, Record] | undefined} */
  #outOfStep() {
    return [...this.#records].find(([, { wanted, standing, asked, overflow }]) => {
      return wanted ? standing === "idle" || (standing === "active" && asked !== overflow) : standing === "active";
    });
  }

  /** @param {string} pattern @param {Standing} standing */
  #standAt(pattern, standing) {
    const record = this.#records.get(pattern);
    if (!record) return;
    record.standing = standing;
    if (!record.wanted && standing === "idle") this.#records.delete(pattern);
  }

  /** @param {Record} record @param {HeadgateError | null} error */
  #answer(record, error) {
    const { waiter } = record;
    record.waiter = null;
    if (error) waiter?.reject(error);
    else waiter?.resolve();
  }
}

/** @param {string} pattern @param {Record} record @returns {SubscribeRequest} */
function ask(pattern, record) {
  record.asked = record.overflow;
  return {
    pattern,
    ...(record.overflow === "catch_up" ? {} : { overflow: record.overflow }),
    ...(record.since ? { since: record.since } : {}),
  };
}

/** @returns {Waiter} */
function waiter() {
  /** @type {any} */
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  // Waiting is optional; a refusal is also reported as `delivery:error`.
  made.promise.catch(() => {});
  return made;
}
