/**
 * Load: a fetched state that follows the events of a pattern. Live collections and stores build on it. It is a function and not a method of the gate, so that
 * a page that does not import it does not carry it.
 *
 * In: the gateway's acknowledgement, its reports of losses, events, answers of the application's `fetch`. Out: calls of `reset` and `apply`.
 *
 * An answer shows the state at one moment, which may be long past when it arrives. So the first fetch begins when the subscription is active, and events that
 * come before the answer are applied after it, in order. After a loss that nothing repairs, the state is fetched again. There is one fetch at a time. A fetch
 * that fails, or does not settle in time, is repeated after growing pauses.
 *
 * An answer may have a `position`, which the server read from the log before it read the state. Events up to there are skipped. A state that was fetched before
 * the acknowledgement is then completed from the log and not fetched again.
 *
 * @import { Gap, Since } from "./language/protocol.js"
 * @import { Fate } from "./session/gaps.js"
 * @import { Gate, HeadgateEvent } from "./gate.js"
 * @typedef {"loading" | "behind" | "current" | "failed" | "closed"} LoadStatus `loading`: there is no answer yet. `behind`: events may be missing from the
 *   state. `current`: none is missing. `failed`: the fetch fails, or the gateway refuses the pattern
 * @typedef {(how: { signal: AbortSignal }) => any} Fetch
 *
 * @typedef {object} LoadOptions
 * @property {(answer: any) => void} reset replaces the state
 * @property {(data: any, event: HeadgateEvent) => void} apply applies an event to the state
 * @property {(load: Load) => void} [changed] called when `status` or `error` has changed
 * @property {Since} [since] the position at which the state that came with the page was read
 * @property {AbortSignal} [signal] closes the load
 * @property {number} [timeoutMs] for a fetch, default 30000
 * @property {number} [resyncSpreadMs] a fetch after a loss waits a random time up to this, default 1000
 *
 * @typedef {Partial<LoadOptions> & { eager?: boolean, loaded?: boolean, lost?: (rolledBack?: object) => void }} PartOptions of parts of this package, which may omit any
 *   other. `eager`: events are applied also before the first answer; `loaded`: there is nothing to fetch at first; `lost`: called at a loss, with the gap if the log has lost
 *   its end
 */
import { reconnectDelayMs } from "./base/backoff.js";
import { DISPOSE } from "./base/dispose.js";
import { Machine } from "./base/machine.js";
import { report } from "./base/report.js";
import { startTimer } from "./base/timer.js";
import { HeadgateError } from "./language/errors.js";
import { checkArgument, checkOptions, GATE, LOAD as OPTIONS } from "./language/options.js";
import { LOG_LOST, ROLLED_BACK } from "./language/protocol.js";
import { meets } from "./language/pattern-index.js";
import { checkPattern } from "./language/topic.js";

/** The most events kept for an answer. If there are more, the state is fetched once more. */
const MAX_KEPT = 10_000;

/**
 * The states of the subscription that a load distinguishes. A broken connection does not end `active`: if it resumes, nothing is missed, and if not, a
 * `restart` follows. `retry`: the gate requests a refused pattern again.
 * @type {Record<"requested" | "active" | "refused" | "closed", Partial<Record<"acknowledge" | "refuse" | "retry" | "restart" | "close", "requested" | "active" | "refused" | "closed">>>}
 */
export const LOAD = {
  requested: { acknowledge: "active", refuse: "refused", close: "closed" },
  active: { refuse: "refused", restart: "requested", close: "closed" },
  refused: { retry: "requested", close: "closed" },
  closed: {},
};

/**
 * Load, then follow: fetch a state when the pattern is active, and apply each event from then on. The state is fetched again after a loss that nothing
 * repairs. If the answer has a `position` (epoch, offset), events up to there are skipped.
 * @param {Gate} gate
 * @param {string} pattern
 * @param {Fetch | undefined} fetch returns the state, one call at a time; a fetch that rejects or does not settle in `timeoutMs` is reported by `delivery:error` and repeated
 * @param {LoadOptions | PartOptions} given `reset(answer)` replaces the state, `apply(data, event)` changes it
 * @returns {Load} `status`, `error`, `reload()`, `close()`
 * @throws {HeadgateError} `invalid_pattern`
 * @throws {TypeError} an option that breaks its rule
 */
export function load(gate, pattern, fetch, given) {
  checkArgument("load: gate", GATE, gate);
  const options = checkOptions("load", OPTIONS, given);
  if (!options.eager) for (const [name, value] of Object.entries({ fetch, reset: options.reset, apply: options.apply })) checkArgument(`load: ${name}`, "function", value);
  return new Load(gate, checkPattern(pattern), fetch, options);
}

export class Load {
  /** Only `close` ends its handlers (dispatcher.js). */
  _isPart = true;
  #gate;
  #fetch;
  #options;
  #life = new Machine(LOAD, "requested");
  /** @type {{ close: () => void } | undefined} */
  #subscription;
  /** A new object after each loss. */
  #mark = {};
  /** The mark when the state was fetched. @type {object | undefined} */
  #loaded;
  /** Whether there is a state, from an answer or from the page. */
  #shows;
  /** Whether a fetch is wanted although the subscription is not active. */
  #early = false;
  /** Whether a fetch has begun. */
  #asked = false;
  /** The offset of the latest applied event. */
  #last = 0;
  /** Where the requested past begins. It may come after later events. @type {any} */
  #since;
  /** Events to apply after the answer. @type {HeadgateEvent[]} */
  #kept = [];
  /** The pattern on the wire, which names the user of `users.me`. */
  #wired = "";
  /** The number of the application's requests whose answers may be older than present events. */
  #holds = 0;
  /** Aborts the fetch under way. @type {AbortController | undefined} */
  #abort;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #failures = 0;
  /** @type {any} */
  #failure = null;
  /** @type {any} */
  #refusal = null;
  /** @type {{ status: LoadStatus, error: any }} */
  #reported = { status: "loading", error: null };

  /** @param {Gate} gate @param {string} pattern a valid one @param {Fetch | undefined} fetch @param {PartOptions} options */
  constructor(gate, pattern, fetch, options) {
    const { since, loaded } = options;
    // Not a field, because a computed name would keep the class in every page.
    this[DISPOSE] = this.close;
    this.#gate = gate;
    this.pattern = pattern;
    this.#fetch = fetch;
    this.#options = options;
    this.#loaded = since || loaded ? this.#mark : undefined;
    this.#shows = Boolean(since);
    if (options.signal?.aborted || gate.status === "closed") this.#life.take("close");
    else this.#begin(since);
  }

  /** @param {Since} [since] */
  #begin(since) {
    const { pattern } = this;
    this.#gate._loads.add(this);
    this.#wired = this.#gate._wired(pattern);
    this.#subscribe(since);
    this.#options.signal?.addEventListener("abort", this.close);
    const changed = () => this.#changed();
    this.#gate.on(
      {
        "delivery:gap": (/** @type {Gap & Fate} */ gap) => {
          const { patterns, lost, reason, from } = gap;
          if (!lost || (patterns.length && !patterns.includes(pattern))) return;
          // Lower offsets come again with other events.
          if (reason === ROLLED_BACK) this.#last = Math.min(this.#last, Number(from) - 1);
          else if (reason === LOG_LOST) this.#last = 0;
          this.#lose(reason === ROLLED_BACK ? gap : undefined);
        },
        "connection:up": (/** @type {{ resumed: boolean | null }} */ { resumed }) => {
          const before = this.#wired;
          this.#wired = this.#gate._wired(pattern);
          // The state of another user is not this user's.
          if (resumed && this.#wired === before) return;
          const restarted = this.#life.offer("restart");
          if (resumed === null) this.#last = 0;
          if (resumed === false || restarted) this.#lose();
          if (restarted) this.#acknowledged();
        },
        // The acknowledgement may take long now.
        "connection:down": () => this.#show(),
        "status:change": changed,
        [`subscription:${pattern}`]: changed,
      },
      this,
    );
    this.#acknowledged();
  }

  /** @returns {LoadStatus} */
  get status() {
    if (this.#life.is("closed")) return "closed";
    if (this.error) return "failed";
    if (this.#life.is("active") && this.#loaded === this.#mark) return "current";
    return this.#shows ? "behind" : "loading";
  }

  /** Why the load has failed; null: it has not. */
  get error() {
    return this.#failure ?? this.#refusal;
  }

  /** While this is the same object, no fetch already begun misses an event. undefined: a fetch that begins now may miss events. */
  get _mark() {
    return this.#life.is("active") ? this.#mark : undefined;
  }

  /** Fetch again, now or after the running fetch. */
  reload() {
    this._outdate();
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#early = true;
    this.#run();
    this.#report();
  }

  /** End the load. No handler and no timer is left, and no answer counts. */
  close = () => {
    if (!this.#life.offer("close")) return;
    this.#options.signal?.removeEventListener("abort", this.close);
    this.#gate.off(null, null, this);
    this.#gate._loads.delete(this);
    this.#subscription?.close();
    clearTimeout(this.#timer);
    this.#kept = [];
    this.#abort?.abort();
    this.#report();
  };

  /** Begin a request of the application whose answer may be older than present events. @returns {() => void} to be called after the answer was used */
  _hold() {
    this.#holds++;
    return () => {
      this.#holds--;
      if (!this.#holds) this.#applyKept(0, Boolean(this.#abort));
      queueMicrotask(() => this.#run());
    };
  }

  /** Take an event of this page. The state already includes it, but an older answer may not. @param {string[]} names of its topic @param {(pattern: string) => HeadgateEvent} describe */
  _takeOwn(names, describe) {
    if (names.some((name) => meets(this.pattern, name))) this.#take(describe(this.pattern), true);
  }

  /** The fetched state may miss events. */
  _outdate() {
    this.#mark = {};
  }

  /** @param {Since} [since] */
  #subscribe(since) {
    this.#since = since;
    this.#subscription = this.#gate._subscribe(this.pattern, { since }, (_data, event) => this.#take(event), true);
  }

  #changed() {
    const { status, error } = this.#gate._standing(this.pattern);
    if (this.#gate.status === "closed") this.close();
    else if (this.#gate.status === "refused" || status === "refused" || status === "waiting") this.#refused(error);
    else if (this.#life.offer("retry")) this.#acknowledged();
    else if (status === "retrying" && this.#life.offer("restart")) {
      // Missed events may come after later events of other patterns.
      this.#lose();
      this.#acknowledged();
    }
  }

  /** @param {any} error */
  #refused(error) {
    this.#refusal = error;
    if (this.#life.offer("refuse")) this._outdate();
    // It cannot follow events, but it can show a state.
    this.#show();
    this.#report();
  }

  async #acknowledged() {
    try {
      await this.#gate.subscribed(this.pattern);
    } catch (/** @type {any} */ error) {
      // `disconnected` means that the load or the gate was closed.
      if (error.code === "disconnected" || this.#life.is("closed")) return;
      return this.#refused(error);
    }
    if (!this.#life.offer("acknowledge")) return;
    this.#refusal = null;
    // Events may be missing between those that came before and those that come now.
    if (!this.#holds) this.#kept = [];
    // Events that followed it in a lost log are gone without notice.
    if (this.#since && this.#since.epoch !== this.#gate._position()?.epoch) this._outdate();
    this.#run();
    this.#report();
  }

  /** Events were lost for good. @param {object} [rolledBack] */
  #lose(rolledBack) {
    this._outdate();
    this.#kept = [];
    this.#options.lost?.(rolledBack);
    this.#later(Math.random() * (this.#options.resyncSpreadMs ?? 1000));
    this.#report();
  }

  /** @param {number} delayMs */
  #later(delayMs) {
    this.#timer ??= startTimer(() => {
      this.#timer = undefined;
      this.#run();
    }, delayMs);
  }

  /** No acknowledgement comes. Fetch a state to show, if no fetch has begun. */
  #show() {
    if (this.#asked) return;
    this.#early = true;
    this.#run();
  }

  /** Fetch, if it is time. */
  #run() {
    const isDue = this.#loaded !== this.#mark && (this.#early || this.#life.is("active"));
    if (isDue && this.#fetch && !this.#abort && !this.#timer && !this.#holds && !this.#life.is("closed")) this.#load(this.#fetch);
  }

  /** @param {Fetch} fetch */
  async #load(fetch) {
    const { pattern, _mark: mark } = this;
    const { timeoutMs = 30_000 } = this.#options;
    const abort = new AbortController();
    const { signal } = abort;
    const timer = startTimer(() => abort.abort(new HeadgateError("timeout", { pattern, where: "fetch", timeoutMs }, true)), timeoutMs);
    this.#abort = abort;
    this.#asked = true;
    try {
      const answer = await new Promise((resolve, reject) => {
        signal.onabort = () => reject(signal.reason);
        // In an async function, so that a function that throws rejects.
        (async () => fetch({ signal }))().then(resolve, reject);
      });
      this.#reset(answer, mark);
    } catch (error) {
      this.#failed(error, mark);
    }
    clearTimeout(timer);
    this.#abort = undefined;
    this.#run();
    this.#report();
  }

  /** @param {any} answer @param {object | undefined} mark when the fetch began */
  #reset(answer, mark) {
    // After a loss, the events since the fetch are no longer kept, so this answer would undo them.
    if (mark && mark !== this.#mark && this.#shows) return;
    const position = answer?.position;
    const upTo = position && position.epoch === this.#gate._position()?.epoch ? position.offset : 0;
    this.#options.reset?.(answer);
    // The application may have closed it in `reset`.
    if (this.#life.is("closed")) return;
    this.#failure = null;
    this.#failures = 0;
    this.#early = false;
    this.#shows = true;
    this.#loaded = mark;
    this.#since = undefined;
    if (!this._mark && position) {
      // In one turn, so that nothing is unsubscribed.
      this.#subscription?.close();
      this.#subscribe(position);
      this.#loaded = this.#mark;
    }
    // If this answer is stale already, another one follows.
    this.#applyKept(upTo, this.#loaded !== this.#mark);
    this.#last = Math.max(this.#last, upTo);
  }

  /** @param {any} error @param {object | undefined} mark */
  #failed(error, mark) {
    if (this.#life.is("closed")) return;
    this.#failure = error ?? null;
    // A fetch that began before the acknowledgement is repeated after it anyway.
    if (mark || !this._mark) this.#later(reconnectDelayMs(this.#failures++));
    // Backbone has reported the error itself.
    if (!error) return;
    if (!this.#options.changed && !this.#gate._heard("delivery:error")) report(error);
    this.#gate.trigger("delivery:error", { error, pattern: this.pattern });
  }

  /** @param {HeadgateEvent} event @param {boolean} [isOwn] whether the state already includes it */
  #take(event, isOwn = false) {
    const { offset } = event;
    // The application has requested it again (`gate.replay`).
    if (!this.#gate._position()) return;
    if (offset) {
      // The requested past may come after later events. That of another handler is already in the state.
      if (offset <= this.#last) return this.#since && this.#lose();
      this.#last = offset;
    }
    if (this.#holds || (this.#fetch && this.#loaded !== this.#mark)) {
      this.#kept.push(event);
      if (this.#kept.length > MAX_KEPT) this.#lose();
    }
    if (!isOwn && (this.#shows || this.#options.eager)) this.#apply(event);
  }

  /** Apply the kept events above an offset. @param {number} [upTo] @param {boolean} [again] whether to keep them for a later answer too */
  #applyKept(upTo = 0, again = false) {
    const kept = this.#kept;
    if (!again) this.#kept = [];
    for (const event of [...kept]) if (!((event.offset ?? Infinity) <= upTo)) this.#apply(event);
  }

  /** @param {HeadgateEvent} event */
  #apply(event) {
    if (!this.#life.is("closed")) this.#call(() => this.#options.apply?.(event.data, event), event.topic);
  }

  #report() {
    const { status, error } = this;
    if (status === this.#reported.status && error === this.#reported.error) return;
    this.#reported = { status, error };
    this.#call(() => this.#options.changed?.(this), this.pattern);
  }

  /** Call a function of the application. If it throws, the others are still called. @param {() => void} act @param {string} name */
  #call(act, name) {
    try {
      act();
    } catch (error) {
      this.#gate._handlerFailed(error, name);
    }
  }
}
