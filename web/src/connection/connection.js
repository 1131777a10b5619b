/**
 * The connection keeps a transport connected to the gateway.
 *
 * In: `open`, `request`, `close` from the gate; `dispatched` from the inbox. Out: calls of its owner, set by `serve`. It makes the auth of each CONNECT from
 * the owner's present state. It is up once the gateway's `welcome` has been dispatched. It reconnects with full jitter, and refreshes the token. `close`
 * leaves no timer and no listener.
 *
 * connection-state.js has the possible steps in each state. Each end of a connection goes through `leave`, which notifies the application last, because a
 * handler of `connection:down` may open, refresh or close at once.
 *
 * @import { TransportOptions } from "../transport/transport.js"
 * @import { Status, Step } from "./connection-state.js"
 * @import { TokenSource } from "./token.js"
 *
 * @typedef {object} ConnectionOnlyOptions
 * @property {TokenSource} [token] a value, or a function (also an async one) called at each connect and before the token expires
 * @property {number} [reconnectDelayMinMs] default 500
 * @property {number} [reconnectDelayMaxMs] default 20000
 * @property {number} [requestTimeoutMs] default 10000
 * @typedef {ConnectionOnlyOptions & TransportOptions} ConnectionOptions
 *
 * @typedef {object} ConnectionOwner
 * @property {() => boolean} busy whether received messages wait to be dispatched
 * @property {() => { resume?: object }} greeting the CONNECT's auth object, without the token
 * @property {(name: string, args: any[]) => void} received each message from the welcome on, in order
 * @property {(name: string, ...args: any[]) => void} tell a lifecycle event
 * @property {() => void} down the connection or the attempt has ended
 * @property {() => void} changed
 * @property {(change: { status: Status, previous: Status, reason: string }) => void} moved the status has changed
 * @property {() => Promise<void>} refresh it is time for another token
 */
import { delayAfterMs, reconnectDelayMs } from "../base/backoff.js";
import { CONNECTION, coarseOf, statusOf } from "./connection-state.js";
import { disconnected, fromWire, HeadgateError } from "../language/errors.js";
import { Machine } from "../base/machine.js";
import { PROBE_MS, REFRESH, WELCOME } from "../language/protocol.js";
import { startTimer } from "../base/timer.js";
import { createTokens, refreshDelayMs } from "./token.js";
import { createTransport } from "../transport/transport.js";
import { endpointOf } from "../transport/address.js";

/** The refusal of an unknown namespace (Socket.IO's specification). */
const NOT_SERVED = "Invalid namespace";
/** Refusals in a row, each of a new but expired token, after which a client gives up. */
const MAX_REFUSALS = 5;
/** How often a client about to move checks whether all requests have been answered. */
export const POLL_MS = 20;
/** For how long such a client sends no new requests, so that it is not always waiting for one. Some requests of an application take longer. */
const HOLD_MS = 500;

/** @param {string} address origin and namespace @param {Required<Pick<ConnectionOptions, "reconnectDelayMinMs" | "reconnectDelayMaxMs" | "connectTimeoutMs" | "requestTimeoutMs">> & ConnectionOptions} options with their defaults */
export function createConnection(address, options) {
  const { token: source, reconnectDelayMinMs, reconnectDelayMaxMs, connectTimeoutMs, requestTimeoutMs } = options;
  const life = new Machine(CONNECTION, "idle", (was, step, reason = step) => {
    const previous = statusOf(was);
    if (status() !== previous) owner.moved({ status: status(), previous, reason });
  });
  const tokens = createTokens(source);
  /** @type {ConnectionOwner} */
  let owner;
  let attempt = 0;
  let refusals = 0;
  /** Counts attempts and their ends, because an answer to an earlier attempt is stale. */
  let generation = 0;
  /** The token of the present connection. @type {string | null | undefined} */
  let shown;
  /** Why the latest attempt was refused. @type {HeadgateError} */
  let refusal;
  /** Whether the token was refused, and the next one must differ from it. */
  let wantsAnother = false;
  /** When the first attempt began; Infinity once the client has been connected. */
  let beganMs = 0;
  /** Why a client that was never connected has not succeeded in the time for one attempt. @type {HeadgateError | undefined} */
  let stranded;
  /** The time that the gateway has named; no attempt begins earlier by itself. */
  let notBeforeMs = 0;
  /** Whether the application has not answered yet with the token of this attempt. */
  let asking = false;
  /** Whether the gateway has asked us to move in our turn, one client after the other, so that we may reconnect at once. */
  let inTurn = false;
  /** Requests without an answer. */
  let unanswered = 0;
  /** Whether it is time to move, and no new request is sent. */
  let isLeaving = false;
  /** Ends the requests that the page has made as it left, once it is back and a later connection or attempt has an outcome. */
  let last = new AbortController();
  /** @type {ReturnType<typeof setTimeout> | undefined} next attempt, the deadline of the present one, or the time to move */
  let timer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let refreshTimer;

  const transport = createTransport(address, options, {
    greet,
    arrived,
    lost,
    refused: (error) => life.is("connecting", "resuming") && refused(error.message === NOT_SERVED ? new HeadgateError("unknown_namespace", { namespace: new URL(address).pathname.slice(1) }) : fromWire(error)),
  });

  const status = () => statusOf(life.state);

  // The steps up: connect, greet, arrived, welcomed.

  /** Begin an attempt, or wait until the page has dispatched all messages. */
  function connect() {
    if (owner.busy()) {
      life.offer("defer");
      return owner.changed();
    }
    life.take("attempt");
    beganMs ||= performance.now();
    generation++;
    asking = false;
    after(() => lost("timeout"), connectTimeoutMs);
    transport.connect();
  }

  /** @param {(auth: object) => void} send */
  async function greet(send) {
    const mine = generation;
    asking = true;
    try {
      const token = await tokens.current();
      if (mine !== generation) return;
      asking = false;
      if (wantsAnother && token === shown) return refused(refusal, undefined, true);
      shown = token;
      const greeting = owner.greeting();
      if (greeting.resume) life.offer("resume");
      send({ ...greeting, token });
    } catch (error) {
      if (mine !== generation) return;
      // The option `auth` holds a value that JSON cannot represent.
      refused(error instanceof HeadgateError ? error : new HeadgateError("not_serializable", { path: "auth", reason: String(error) }, false, undefined, error));
    }
  }

  /** @param {string} name @param {any[]} args */
  function arrived(name, args) {
    // The gateway has answered. The time until the page reads the welcome does not count.
    if (name === WELCOME && life.offer("greet")) clearTimeout(timer);
    // Messages before the welcome mean nothing, and messages after the end come again.
    if (life.is("welcoming", "returning") || isUp()) owner.received(name, args);
  }

  // The steps down: lost and refused, which call leave.

  /** The connection broke, or an attempt failed. @param {string} reason @param {number} [retryAfterS] */
  function lost(reason, retryAfterS) {
    if (life.is("connecting", "resuming")) refused(new HeadgateError("unreachable", { url: address, reason: asking ? "no token in time" : reason }, true), retryAfterS);
    else leave("lose", reason, retryAfterS ? namedMs(retryAfterS) : life.is("moving") && inTurn ? 0 : undefined);
  }

  /** @param {HeadgateError} error @param {number} [retryAfterS] @param {boolean} [isSame] whether the source has returned the refused token again */
  function refused(error, retryAfterS = error.parts.retryAfterS, isSame = false) {
    const { code, retry, parts } = error;
    // Only an expired token is worth another try. The next one would have any other fault too.
    wantsAnother = !retry && !isSame && code === "unauthorized" && tokens.refused(shown, parts.reason === "expired") && ++refusals < MAX_REFUSALS;
    const another = retry || wantsAnother;
    if (retry && performance.now() - beganMs >= connectTimeoutMs) stranded = error;
    const delayMs = another ? namedMs(retryAfterS) : null;
    refusal = error;
    leave(another ? "lose" : "refuse", error.message, delayMs, () => owner.tell("connection:refused", error, { delayMs }));
  }

  /**
   * Leave the present connection or attempt, if there is one.
   * @param {Step} step
   * @param {string} reason
   * @param {number | null} [delayMs] until the next attempt, default the back-off's; null: none follows by itself
   * @param {() => void} [tell] a further report to the application
   */
  function leave(step, reason, delayMs, tell) {
    const wasUp = isUp();
    if (!life.offer(step, reason)) return;
    if (delayMs === undefined) delayMs = nextDelayMs();
    generation++;
    isLeaving = false;
    endLast();
    clearTimeout(timer);
    clearTimeout(refreshTimer);
    if (delayMs !== null) after(connect, delayMs);
    transport[step === "close" ? step : "disconnect"]();
    owner.down();
    // The state must not change after this, because a handler may have begun another attempt.
    if (wasUp) owner.tell("connection:down", { reason, delayMs });
    tell?.();
  }

  /** Return the time until the next attempt. If the gateway has named one, it is also the least. @param {number | undefined} afterS as the gateway has named it */
  function namedMs(afterS) {
    const delayMs = delayAfterMs(afterS, nextDelayMs());
    if (afterS) notBeforeMs = performance.now() + delayMs;
    return delayMs;
  }

  function nextDelayMs() {
    return reconnectDelayMs(attempt++, reconnectDelayMinMs, reconnectDelayMaxMs);
  }

  /** @param {() => void} act @param {number} delayMs */
  function after(act, delayMs) {
    clearTimeout(timer);
    timer = startTimer(act, delayMs);
  }

  /** Connect now, unless connecting or connected, with the counts of attempts and refusals at 0. */
  function open() {
    if (!life.can("attempt") || life.is("dispatching")) return;
    attempt = refusals = 0;
    wantsAnother = false;
    clearTimeout(timer);
    connect();
  }

  const isUp = () => coarseOf(status()) === "up";

  /**
   * Send a request and return its acknowledgement.
   * @param {string} name
   * @param {any} body
   * @returns {Promise<any>} rejected with HeadgateError: the gateway's refusal, `disconnected`, `timeout`, or `outcome_unknown` for a body that has an id and was sent
   */
  async function request(name, body) {
    if (life.is("closed")) throw new HeadgateError("closed");
    const isLast = life.is("paused");
    if (!isLast && (isLeaving || !isUp())) throw disconnected();
    const mine = generation;
    const { data, ephemeral, timeout_ms, ...named } = body;
    let answer;
    unanswered++;
    try {
      // The gateway ends a request of the application (headgate/request) after its timeout, and reports that.
      answer = await (isLast ? requestLast(name, body) : transport.request(name, body, timeout_ms + PROBE_MS || requestTimeoutMs));
    } catch (error) {
      if (error instanceof HeadgateError) throw error;
      const reason = mine === generation ? "timeout" : "disconnected";
      // Repeating it could do it twice, unless the id is the same.
      if (named.id && !ephemeral) throw new HeadgateError("outcome_unknown", { ...named, reason }, false, undefined, error);
      throw new HeadgateError(reason, { request: name }, true, undefined, error);
    } finally {
      unanswered--;
    }
    const { error, ok, ...reply } = answer;
    if (error) throw fromWire(error);
    return reply;
  }

  /**
   * Make a request while the page ends, when the browser keeps no connection, but a fetch of up to 64 KiB. Any gateway answers it. A page that comes back
   * waits for the answer until its next connection is up or has failed.
   * @param {string} name @param {any} body
   */
  async function requestLast(name, body) {
    const answer = await fetch(endpointOf(address, /** @type {string} */ (options.path), `request?namespace=${address.split("/").pop()}`), {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ .../** @type {any} */ (options).auth, token: shown, name, body }),
      credentials: "include",
      keepalive: true,
      signal: last.signal,
    });
    const reply = await answer.json();
    // Not from a gateway, so the outcome is unknown.
    if (!reply.error && !answer.ok) throw Error(`HTTP ${answer.status}`);
    return reply;
  }

  function endLast() {
    last.abort();
    last = new AbortController();
  }

  function scheduleRefresh() {
    if (tokens.asks) refreshIn(refreshDelayMs(shown, Date.now()));
  }

  /**
   * Refresh the token after a delay. Each failure is reported and repeated later. If none succeeds, the present token expires, the gateway disconnects the
   * client, and the next CONNECT has a new one.
   * @param {number | undefined} delayMs @param {number} [failures]
   */
  function refreshIn(delayMs, failures = 0) {
    clearTimeout(refreshTimer);
    if (delayMs) refreshTimer = startTimer(renew, delayMs, failures);
  }

  /** Refresh the token now, even while another refresh is under way, because its token may be older than this call. */
  function renew(failures = 0) {
    const mine = generation;
    owner.refresh().catch((/** @type {HeadgateError} */ error) => {
      if (mine !== generation) return;
      if (error.retry) refreshIn(reconnectDelayMs(failures, 1000, 60_000), failures + 1);
      owner.tell("delivery:error", { error });
    });
  }

  return {
    /** Set the owner, before the first `open`. @param {ConnectionOwner} by */
    serve(by) {
      owner = by;
    },

    /** Return the status that an application sees. */
    status,

    /** Return whether requests can be sent. */
    isUp,

    /** Return whether it was closed for good. */
    isClosed: () => life.is("closed"),

    /** Return why a client that was never connected has not succeeded in `connectTimeoutMs`. It keeps trying. */
    stranded: () => stranded,

    /** Return why the client has given up, if it has. */
    refusal: () => (life.is("refused") ? refusal : undefined),

    open,

    /** All received messages were dispatched. */
    dispatched() {
      if (life.is("dispatching")) connect();
    },

    /**
     * The page or its network is back. Probe the connection, or make the next attempt now, but not before the time that the gateway has named. It does not
     * end a refusal, and does not replace `open`.
     * @param {number} [spreadMs] the attempt follows within this time, because many pages may be notified at once
     */
    wake(spreadMs = 0) {
      transport.probe(spreadMs);
      if (!life.is("waiting", "paused")) return;
      const delayMs = Math.max(Math.random() * spreadMs, notBeforeMs - performance.now());
      if (delayMs > 0) after(open, delayMs);
      else open();
    },

    /** Disconnect until `wake` or `open`. */
    pause: () => leave("pause", "paused", null),

    /** The browser reports that its network is gone. End an attempt, or probe the connection. */
    offline() {
      if (life.is("connecting", "resuming")) lost("offline");
      else transport.probe();
    },

    /** The welcome is unreadable, as from another kind of gateway or a faulty one. @param {unknown} error */
    unreadable: (error) => refused(new HeadgateError("unreachable", { url: address, reason: `the welcome cannot be read: ${error}` }, true, undefined, error)),

    /** The page is too slow. Leave, and resume once it has dispatched all messages. @param {string} reason */
    overflowed: (reason) => leave("lose", reason),

    /**
     * The gateway is about to stop. Leave it later, once it has answered all requests, and connect again at once. If the gateway cannot wait for them, it
     * ends the connection.
     * @param {string} reason
     * @param {number} inMs how long to stay
     */
    move(reason, inMs) {
      if (!life.offer("move", reason)) return;
      inTurn = inMs > 0;
      const untilMs = performance.now() + inMs + HOLD_MS;
      const go = () => {
        isLeaving = performance.now() < untilMs;
        if (unanswered) after(go, POLL_MS);
        else leave("lose", reason, 0);
      };
      after(go, inMs);
    },

    /**
     * The welcome has been dispatched. Return whether its connection still exists, and so is up.
     * @param {boolean} isLive whether there is nothing to catch up on
     */
    welcomed(isLive) {
      if (!life.offer(isLive ? "join" : "return")) return false;
      endLast();
      attempt = refusals = 0;
      wantsAnother = false;
      beganMs = Infinity;
      stranded = undefined;
      scheduleRefresh();
      return true;
    },

    /** The client has caught up with the log, or reads missed events from it. @param {boolean} isLive */
    stands: (isLive) => life.offer(isLive ? "follow" : "replay"),

    request,

    /** The gateway asks for a fresh token. */
    renew,

    /** Return the token for a refresh. @returns {Promise<string | null | undefined>} rejected with `token_unavailable` */
    nextToken: tokens.next,

    /**
     * Use another token, on the live connection and for every CONNECT from now on. Without a connection the next one has it; a refused client connects now.
     * @param {string | null | undefined} token
     * @param {boolean} given whether the application gave it, so that it precedes the source
     */
    async refresh(token, given) {
      clearTimeout(refreshTimer);
      if (isUp()) await show(token, given);
      else if (given) tokens.keep(token, given);
      if (life.is("refused")) open();
    },

    /** Disconnect for good. */
    close() {
      leave("close", "closed", null);
    },
  };

  /** @param {string | null | undefined} token @param {boolean} given */
  async function show(token, given) {
    try {
      await request(REFRESH, { token });
    } catch (error) {
      // Without an answer, the gateway may have accepted it.
      if (given && ["disconnected", "timeout"].includes(/** @type {HeadgateError} */ (error).code)) tokens.keep(token, given);
      if (isUp()) scheduleRefresh();
      throw error;
    }
    tokens.keep(token, given);
    if (!isUp()) return;
    shown = token;
    scheduleRefresh();
  }
}
