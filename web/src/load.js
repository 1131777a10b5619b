/**
 * Load: a fetched state that follows the events of a pattern. Live collections and stores are made of it. It is a function and no
 * method of the gate, so that a page that does not import it does not carry it.
 *
 * In: the gateway's acknowledgement, its notices of loss, events, answers of the application's `fetch`. Out: calls of `reset` and `apply`.
 *
 * An answer shows the state at one moment, which may be long past when it arrives. So the first fetch begins when the subscription is active,
 * and events that come before the answer are applied after it, in order. After a loss that nothing repairs the state is fetched again. There is
 * one fetch at a time. One that fails, or does not settle in time, is repeated later and later.
 *
 * An answer may name its `position`: a place in the log that the server read before it read the state. Events up to there are left out. A
 * state that was fetched before the acknowledgement is then completed from the log, and not fetched again.
 *
 * @import { Gap, Since } from "./language/protocol.js"
 * @import { Fate } from "./session/gaps.js"
 * @import { Gate, HeadgateEvent } from "./gate.js"
 * @typedef {"loading" | "behind" | "current" | "failed" | "closed"} LoadStatus `loading`: there is no answer yet. `behind`: events may be missing in
 *   what there is. `current`: none is. `failed`: the fetch fails, or the gateway refuses the pattern
 * @typedef {(how: { signal: AbortSignal }) => any} Fetch
 *
 * @typedef {object} LoadOptions
 * @property {(answer: any) => void} reset replaces the state
 * @property {(data: any, event: HeadgateEvent) => void} apply changes it
 * @property {(load: Load) => void} [changed] called when `status` or `error` is another
 * @property {Since} [since] where in the log the state that the page has already was read
 * @property {AbortSignal} [signal] closes it
 * @property {number} [timeoutMs] for a fetch, default 30000
 * @property {number} [resyncSpreadMs] a fetch after a loss waits a random time up to this, default 1000
 *
 * @typedef {Partial<LoadOptions> & { eager?: boolean, loaded?: boolean, lost?: (rolledBack?: object) => void }} PartOptions of parts of this package, which may leave out
 *   any other. `eager`: events are applied before there is an answer too; `loaded`: there is nothing to fetch at first; `lost`: called at a loss, with the gap if the log has
 *   lost its end
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

/** Events kept until an answer; with more of them the state is fetched once more. */
const MAX_KEPT = 10_000;
/** Between two fetches of which the first has failed. */
const [RETRY_MIN_MS, RETRY_MAX_MS] = [500, 20_000];

/**
 * The subscription, as a load needs it. `active` outlasts a broken connection: if it resumes, nothing is missed, and if it does not, that is
 * a `restart`. `retry`: the gate asks again for a pattern that was refused.
 * @type {Record<"requested" | "active" | "refused" | "closed", Partial<Record<"acknowledge" | "refuse" | "retry" | "restart" | "close", "requested" | "active" | "refused" | "closed">>>}
 */
export const LOAD = {
  requested: { acknowledge: "active", refuse: "refused", close: "closed" },
  active: { refuse: "refused", restart: "requested", close: "closed" },
  refused: { retry: "requested", close: "closed" },
  closed: {},
};

/**
 * Load, then follow: fetch a state when the pattern is active, and change it by each event from then on. It is fetched again after a loss that
 * nothing repairs. An answer with a `position` (epoch, offset) leaves out the events up to there.
 * @param {Gate} gate
 * @param {string} pattern
 * @param {Fetch | undefined} fetch brings the state, one call at a time; a rejection, or no answer in `timeoutMs`, is reported by `delivery:error` and repeated
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
  /** Its handlers end by `close` alone (dispatcher.js). */
  _isPart = true;
  #gate;
  #fetch;
  #options;
  #life = new Machine(LOAD, "requested");
  /** @type {{ close: () => void } | undefined} */
  #subscription;
  /** Another object since the last loss. */
  #mark = {};
  /** The mark with which the state was fetched. @type {object | undefined} */
  #loaded;
  /** Whether there is a state: that of an answer, or of the page. */
  #shows;
  /** Whether a fetch is wanted although the subscription is not active. */
  #early = false;
  /** Whether a fetch has begun. */
  #asked = false;
  /** The offset of the latest event that the state has. */
  #last = 0;
  /** Where the requested past begins; it may follow later events. @type {any} */
  #since;
  /** Events to apply after the answer. @type {HeadgateEvent[]} */
  #kept = [];
  /** Requests of the application with answers that may be older than current events. */
  #holds = 0;
  /** Of the fetch under way. @type {AbortController | undefined} */
  #abort;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #failures = 0;
  /** @type {any} */
  #failure = null;
  /** @type {any} */
  #refusal = null;
  /** @type {{ status: LoadStatus, error: any }} */
  #told = { status: "loading", error: null };

  /** @param {Gate} gate @param {string} pattern a valid one @param {Fetch | undefined} fetch @param {PartOptions} options */
  constructor(gate, pattern, fetch, options) {
    const { since, loaded } = options;
    // No field: a computed name would keep the class in every page.
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
    this.#subscribe(since);
    this.#options.signal?.addEventListener("abort", this.close);
    const changed = () => this.#changed();
    this.#gate.on(
      {
        "delivery:gap": (/** @type {Gap & Fate} */ gap) => {
          const { patterns, lost, reason, from } = gap;
          if (!lost || (patterns.length && !patterns.includes(pattern))) return;
          // Offsets come again with other events.
          if (reason === ROLLED_BACK) this.#last = Math.min(this.#last, Number(from) - 1);
          else if (reason === LOG_LOST) this.#last = 0;
          this.#lose(reason === ROLLED_BACK ? gap : undefined);
        },
        "connection:up": (/** @type {{ resumed: boolean | null }} */ { resumed }) => {
          if (resumed) return;
          const restarted = this.#life.offer("restart");
          if (resumed === null) this.#last = 0;
          if (resumed === false || restarted) this.#lose();
          if (restarted) this.#acknowledged();
        },
        // The acknowledgement may be long in coming now.
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

  /** Why it has failed; null: it has not. */
  get error() {
    return this.#failure ?? this.#refusal;
  }

  /** A fetch shows every event while this stays the same object; undefined: no fetch of now does. */
  get _mark() {
    return this.#life.is("active") ? this.#mark : undefined;
  }

  /** Fetch again: now, or after the running fetch. */
  reload() {
    this._outdate();
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#early = true;
    this.#run();
    this.#tell();
  }

  /** End it: no handler and no timer is left, and no answer counts. */
  close = () => {
    if (!this.#life.offer("close")) return;
    this.#options.signal?.removeEventListener("abort", this.close);
    this.#gate.off(null, null, this);
    this.#gate._loads.delete(this);
    this.#subscription?.close();
    clearTimeout(this.#timer);
    this.#kept = [];
    this.#abort?.abort();
    this.#tell();
  };

  /** Begin a request of the application with an answer that may be older than current events. @returns {() => void} to be called when it has been taken */
  _hold() {
    this.#holds++;
    return () => {
      this.#holds--;
      if (!this.#holds) this.#applyKept(0, Boolean(this.#abort));
      queueMicrotask(() => this.#run());
    };
  }

  /** Take an event of the page's own: the state has it, and an older answer has not. @param {string[]} names of its topic @param {(pattern: string) => HeadgateEvent} describe */
  _takeOwn(names, describe) {
    if (names.some((name) => meets(this.pattern, name))) this.#take(describe(this.pattern), true);
  }

  /** What was fetched may miss events. */
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
      // Events missed since may follow later events of other patterns.
      this.#lose();
      this.#acknowledged();
    }
  }

  /** @param {any} error */
  #refused(error) {
    this.#refusal = error;
    if (this.#life.offer("refuse")) this._outdate();
    // It cannot follow, but it can show something.
    this.#show();
    this.#tell();
  }

  async #acknowledged() {
    try {
      await this.#gate.subscribed(this.pattern);
    } catch (/** @type {any} */ error) {
      // `disconnected`: it was closed, or the gate was.
      if (error.code === "disconnected" || this.#life.is("closed")) return;
      return this.#refused(error);
    }
    if (!this.#life.offer("acknowledge")) return;
    this.#refusal = null;
    // Others may be missing between those that came before and those that come now.
    if (!this.#holds) this.#kept = [];
    // What followed it in a lost log is gone without notice.
    if (this.#since && this.#since.epoch !== this.#gate._position()?.epoch) this._outdate();
    this.#run();
    this.#tell();
  }

  /** Events were lost for good. @param {object} [rolledBack] */
  #lose(rolledBack) {
    this._outdate();
    this.#kept = [];
    this.#options.lost?.(rolledBack);
    this.#later(Math.random() * (this.#options.resyncSpreadMs ?? 1000));
    this.#tell();
  }

  /** @param {number} delayMs */
  #later(delayMs) {
    this.#timer ??= startTimer(() => {
      this.#timer = undefined;
      this.#run();
    }, delayMs);
  }

  /** No acknowledgement comes: fetch what there is, if nothing was asked for. */
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
        // In an async function, so that one that throws at once rejects.
        (async () => fetch({ signal }))().then(resolve, reject);
      });
      this.#reset(answer, mark);
    } catch (error) {
      this.#failed(error, mark);
    }
    clearTimeout(timer);
    this.#abort = undefined;
    this.#run();
    this.#tell();
  }

  /** @param {any} answer @param {object | undefined} mark of the time when the fetch began */
  #reset(answer, mark) {
    // It would take away what came after it, which a loss has had it forget to keep.
    if (mark && mark !== this.#mark && this.#shows) return;
    const position = answer?.position;
    const upTo = position && position.epoch === this.#gate._position()?.epoch ? position.offset : 0;
    this.#options.reset?.(answer);
    // By the application, in `reset`.
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
    // There is another answer to come if this one is stale already.
    this.#applyKept(upTo, this.#loaded !== this.#mark);
    this.#last = Math.max(this.#last, upTo);
  }

  /** @param {any} error @param {object | undefined} mark */
  #failed(error, mark) {
    if (this.#life.is("closed")) return;
    this.#failure = error ?? null;
    // One that began before the acknowledgement is repeated with it anyway.
    if (mark || !this._mark) this.#later(reconnectDelayMs(this.#failures++, RETRY_MIN_MS, RETRY_MAX_MS));
    // Backbone has reported its own.
    if (!error) return;
    if (!this.#options.changed && !this.#gate._heard("delivery:error")) report(error);
    this.#gate.trigger("delivery:error", { error, pattern: this.pattern });
  }

  /** @param {HeadgateEvent} event @param {boolean} [isOwn] the state has it already */
  #take(event, isOwn = false) {
    const { offset } = event;
    // The application has asked for it again (`gate.replay`): it does not concern the events between.
    if (!this.#gate._position()) return;
    if (offset) {
      // The past of the state itself may follow later events; that of another handler is known.
      if (offset <= this.#last) return this.#since && this.#lose();
      this.#last = offset;
    }
    if (this.#holds || (this.#fetch && this.#loaded !== this.#mark)) {
      this.#kept.push(event);
      if (this.#kept.length > MAX_KEPT) this.#lose();
    }
    if (!isOwn && (this.#shows || this.#options.eager)) this.#apply(event);
  }

  /** Apply the events that were kept and lie above an offset. @param {number} [upTo] @param {boolean} [again] keep them for a later answer too */
  #applyKept(upTo = 0, again = false) {
    const kept = this.#kept;
    if (!again) this.#kept = [];
    for (const event of [...kept]) if (!((event.offset ?? Infinity) <= upTo)) this.#apply(event);
  }

  /** @param {HeadgateEvent} event */
  #apply(event) {
    if (!this.#life.is("closed")) this.#call(() => this.#options.apply?.(event.data, event), event.topic);
  }

  #tell() {
    const { status, error } = this;
    if (status === this.#told.status && error === this.#told.error) return;
    this.#told = { status, error };
    this.#call(() => this.#options.changed?.(this), this.pattern);
  }

  /** Call a function of the application's; the others go on if it throws. @param {() => void} act @param {string} name */
  #call(act, name) {
    try {
      act();
    } catch (error) {
      this.#gate._handlerFailed(error, name);
    }
  }
}
