/**
 * Subscriptions: what the application wants, against what the gateway has acknowledged. Pure state, no I/O.
 *
 * In: `want` / `unwant` as first handlers come and last ones leave, `connecting` / `welcomed` / `down` from the connection,
 * `settled` with each acknowledgement. Out: `next()`, the requests that would bring the two into step, one in flight per
 * pattern, so that a quick off-and-on costs at most one request. Nothing is ever sent for a pattern that is settled.
 *
 * @import { Overflow, Since, SubscribeRequest, SubscribeResult } from "./protocol.js"
 * @typedef {{ name: "subscribe" | "unsubscribe", body: SubscribeRequest }} Request
 * @typedef {"idle" | "asking" | "active" | "leaving" | "refused"} Standing where the gateway stands, as far as we know
 * @typedef {{ promise: Promise<void>, resolve: () => void, reject: (error: HeadgateError) => void }} Waiter
 *
 * @typedef {{ overflow?: Overflow, repair?: boolean }} Wishes of a handler
 *
 * @typedef {object} Record
 * @property {string} pattern
 * @property {boolean} wanted
 * @property {Overflow} overflow
 * @property {Since} [since] taken out once the gateway has it
 * @property {boolean} repair
 * @property {Since} [asking] the one that went with the latest request
 * @property {Overflow | null} asked the policy that the gateway was last asked for; null: it has nothing of ours
 * @property {Standing} standing
 * @property {HeadgateError} [error] why it was refused
 * @property {Waiter} [waiter]
 */
import { closed, disconnected, HeadgateError } from "./errors.js";
import { OVERFLOW, SUBSCRIBE, UNSUBSCRIBE } from "./protocol.js";
import { matches } from "./topic.js";

export class Subscriptions {
  /** @type {Map<string, Record>} */
  #records = new Map();

  /** Return what is wanted, in order of arrival. */
  wanted() {
    return [...this.#records.values()].filter(({ wanted }) => wanted);
  }

  /**
   * Want a pattern, or want it otherwise. The strongest policy of its handlers counts: one that must not lose events is not
   * made to by another that may.
   * @param {string} pattern
   * @param {Wishes[]} [wishes] of its handlers
   */
  want(pattern, wishes = [{}]) {
    /** @type {Record} */
    const record = this.#records.get(pattern) ?? { pattern, wanted: false, overflow: "drop", repair: true, asked: null, standing: "idle" };
    this.#records.set(pattern, record);
    record.wanted = true;
    record.overflow = strongest(wishes.map(({ overflow = OVERFLOW[0] }) => overflow)) ?? OVERFLOW[0];
    record.repair = wishes.some(({ repair }) => repair !== false);
  }

  /** Ask again for what was refused, as another handler wants it. @param {string} pattern */
  again(pattern) {
    const record = this.#records.get(pattern);
    if (record?.standing === "refused") record.standing = "idle";
  }

  /** Ask for a part of the past (again). @param {string} pattern @param {Since} since */
  rewind(pattern, since) {
    const record = this.#records.get(pattern);
    if (record) Object.assign(record, { since, asked: null });
  }

  /** @param {string} pattern */
  unwant(pattern) {
    const record = this.#records.get(pattern);
    if (!record) return;
    record.wanted = false;
    answer(record, disconnected(`unsubscribed from '${pattern}'`));
    if (record.standing === "refused") record.standing = "idle";
    this.#forget(record);
  }

  /**
   * Return a promise for the acknowledgement of a wanted pattern.
   * @param {string} pattern
   * @returns {Promise<void>} rejected with the refusal
   */
  async acknowledged(pattern) {
    const record = this.#records.get(pattern);
    if (!record?.wanted) throw disconnected(`no handler for '${pattern}'`);
    if (record.standing === "refused") throw record.error;
    if (record.standing === "active") return;
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
    return this.wanted().filter(({ asked }) => !resuming || asked).map(ask);
  }

  /**
   * Take the gateway's word on what was sent in CONNECT.
   * @param {SubscribeResult[]} results
   * @returns {{ pattern: string, error: HeadgateError }[]} what was refused
   */
  welcomed(results) {
    const refused = [];
    for (const { pattern, ok, error: refusal } of results) {
      const error = this.settled({ name: SUBSCRIBE, body: { pattern } }, ok ? null : HeadgateError.fromWire(refusal));
      if (error) refused.push({ pattern, error });
    }
    // Sent and left out of the answer: not in force.
    this.#reset("asking");
    return refused;
  }

  /** The connection is gone, and with it every subscription and request. */
  down() {
    this.#reset();
  }

  /**
   * Return what asks again for what is refused now: to be called when the client has another token. What that no longer
   * grants is told meanwhile, and must not be asked for.
   */
  retryRefused() {
    const refused = this.wanted().filter(({ standing }) => standing === "refused");
    return () => {
      for (const { pattern } of refused) this.again(pattern);
    };
  }

  /**
   * The gateway has ended a subscription: the client's token no longer grants it.
   * @param {string} pattern @param {HeadgateError} error
   * @returns {boolean} whether the application must hear of it
   */
  ended(pattern, error) {
    const record = this.#records.get(pattern);
    if (!record) return false;
    this.#refuse(record, error);
    return record.wanted;
  }

  /** Return which of these patterns are wanted and repaired. @param {string[]} patterns */
  repaired(patterns) {
    return patterns.filter((pattern) => this.#records.get(pattern)?.wanted && this.#records.get(pattern)?.repair);
  }

  /** Return the policy that decides about a topic. @param {string} topic */
  policy(topic) {
    return strongest(this.wanted().flatMap(({ pattern, overflow }) => (matches(pattern, topic) ? overflow : [])));
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
    const record = this.#outOfStep();
    if (!record) return null;
    if (record.wanted) return { name: SUBSCRIBE, body: ask(record) };
    record.standing = "leaving";
    return { name: UNSUBSCRIBE, body: { pattern: record.pattern } };
  }

  /**
   * Take the outcome of a request.
   * @param {Request} request
   * @param {HeadgateError | null} error
   * @returns {HeadgateError | null} a refusal that the application must hear of
   */
  settled({ name, body }, error) {
    const record = this.#records.get(body.pattern);
    if (!record) return null;
    const leaving = name === UNSUBSCRIBE;
    // A refusal to let us leave means that there is nothing to leave, unless it may pass.
    if (leaving ? error?.retry : !error) {
      record.standing = "active";
      if (leaving) return null;
      // Not one that was asked for since.
      if (record.since === record.asking) delete record.since;
      answer(record);
      return null;
    }
    if (leaving || !error || error.retry || !record.wanted) error = null;
    this.#refuse(record, error);
    return error;
  }

  /** Forget everything. */
  close() {
    for (const record of this.#records.values()) answer(record, closed());
    this.#records.clear();
  }

  /** Not in force (any more). @param {Record} record @param {HeadgateError | null} error null: it may be asked for again */
  #refuse(record, error) {
    record.asked = null;
    record.standing = "idle";
    this.#forget(record);
    if (!error || !record.wanted) return;
    record.standing = "refused";
    record.error = error;
    answer(record, error);
  }

  /** @returns {Record | undefined} */
  #outOfStep() {
    return [...this.#records.values()].find(({ wanted, standing, asked, overflow }) =>
      wanted ? standing === "idle" || (standing === "active" && asked !== overflow) : standing === "active",
    );
  }

  /** @param {Standing} [standing] those that stand there, else all */
  #reset(standing) {
    for (const record of this.#records.values()) {
      if (standing && record.standing !== standing) continue;
      record.standing = "idle";
      this.#forget(record);
    }
  }

  /** Forget what is neither wanted nor known to the gateway. @param {Record} record */
  #forget({ pattern, wanted, standing }) {
    if (!wanted && standing === "idle") this.#records.delete(pattern);
  }
}

/** @param {Overflow[]} policies @returns {Overflow | undefined} */
function strongest(policies) {
  return OVERFLOW.find((policy) => policies.includes(policy));
}

/** @param {Record} record @returns {SubscribeRequest} */
function ask(record) {
  const { pattern, overflow, since } = record;
  Object.assign(record, { standing: "asking", asked: overflow, asking: since });
  return { pattern, ...(overflow !== OVERFLOW[0] && { overflow }), ...(since && { since }) };
}

/** Tell who waits. @param {Record} record @param {HeadgateError} [error] */
function answer(record, error) {
  if (error) record.waiter?.reject(error);
  else record.waiter?.resolve();
  delete record.waiter;
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
