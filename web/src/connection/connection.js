/**
 * The connection: one transport of our own, kept up.
 *
 * In: `open`, `request`, `close` from the gate; `dispatched` from the inbox. Out: calls of its owner, which `serve` names. It makes each
 * CONNECT's auth from the owner's present state, is up once the gateway's `welcome` has been dispatched, reconnects with full
 * jitter, and refreshes the token. `close` leaves no timer and no listener.
 *
 * connection-state.js has the possible steps in each state. Each end of a connection goes through `leave`, which notifies the
 * application last, because a handler of `connection:down` may open, refresh or close at once.
 *
 * @import { TransportOptions } from "../transport/transport.js"
 * @import { Status, Step } from "./connection-state.js"
 * @import { TokenSource } from "./token.js"
 *
 * @typedef {object} ConnectionOnlyOptions
 * @property {TokenSource} [token] a value, or a function (may be async) that is asked at each connect and before expiry
 * @property {number} [reconnectDelayMinMs] default 500
 * @property {number} [reconnectDelayMaxMs] default 20000
 * @property {number} [requestTimeoutMs] default 10000
 * @typedef {ConnectionOnlyOptions & TransportOptions} ConnectionOptions
 *
 * @typedef {object} ConnectionOwner
 * @property {() => boolean} busy whether received messages wait to be dispatched
 * @property {() => { resume?: object }} greeting the CONNECT's auth object, but for the token
 * @property {(name: string, args: any[]) => void} received each message from the welcome on, in order
 * @property {(name: string, ...args: any[]) => void} tell a lifecycle event
 * @property {() => void} down the connection or the attempt ended
 * @property {() => void} changed
 * @property {(change: { status: Status, previous: Status, reason: string }) => void} moved the status is another
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

/** The whole refusal of an unknown namespace, as in Socket.IO's specification. */
const NOT_SERVED = "Invalid namespace";
/** Refusals in a row of tokens that were all new and all expired, after which a client gives up. */
const MAX_REFUSALS = 5;
/** How often a client that is to move checks whether all requests have their answers. */
const POLL_MS = 20;

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
  /** Rises with every attempt and whenever one is left: an answer to an older one is stale. */
  let generation = 0;
  /** The token of the present connection. @type {string | null | undefined} */
  let shown;
  /** Why it was refused. @type {HeadgateError} */
  let refusal;
  /** The token that was shown was refused, and the next is to be another one. */
  let wantsAnother = false;
  /** When the first attempt of a client began that was never connected. */
  let beganMs = 0;
  /** Why such a client has not come through in the time that a connection may take. @type {HeadgateError | undefined} */
  let stranded;
  /** No attempt begins earlier by itself: the gateway has named a time. */
  let notBeforeMs = 0;
  /** The application has been asked for the token of this attempt. */
  let asking = false;
  /** The gateway has asked us to move, one client after the other: we may come back at once. */
  let inTurn = false;
  /** How many requests have no answer yet. */
  let unanswered = 0;
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
      // The option `auth` holds what JSON has no place for.
      refused(error instanceof HeadgateError ? error : new HeadgateError("not_serializable", { path: "auth", reason: String(error) }, false, undefined, error));
    }
  }

  /** @param {string} name @param {any[]} args */
  function arrived(name, args) {
    // The gateway has answered. The time until the page reads the welcome is not the gateway's.
    if (name === WELCOME && life.offer("greet")) clearTimeout(timer);
    // Messages before the welcome mean nothing, and messages after the end come again.
    if (life.is("welcoming", "returning") || isUp()) owner.received(name, args);
  }

  // The steps down: lost, refused; both leave.

  /** The connection broke, or an attempt failed. @param {string} reason @param {number} [retryAfterS] */
  function lost(reason, retryAfterS) {
    if (life.is("connecting", "resuming")) refused(new HeadgateError("unreachable", { url: address, reason: asking ? "no token in time" : reason }, true), retryAfterS);
    else leave("lose", reason, retryAfterS ? namedMs(retryAfterS) : life.is("moving") && inTurn ? 0 : undefined);
  }

  /** @param {HeadgateError} error @param {number} [retryAfterS] @param {boolean} [isSame] the source has brought the refused token again */
  function refused(error, retryAfterS = error.parts.retryAfterS, isSame = false) {
    const { code, retry, parts } = error;
    // Any other fault of a token comes with the next one too: only time has made this one wrong.
    wantsAnother = !retry && !isSame && code === "unauthorized" && tokens.refused(parts.reason === "expired") && ++refusals < MAX_REFUSALS;
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
   * @param {number | null} [delayMs] until the next attempt, else the back-off's; null: none follows by itself
   * @param {() => void} [tell] notifies the application of more
   */
  function leave(step, reason, delayMs, tell) {
    const wasUp = isUp();
    if (!life.offer(step, reason)) return;
    if (delayMs === undefined) delayMs = nextDelayMs();
    generation++;
    clearTimeout(timer);
    clearTimeout(refreshTimer);
    if (delayMs !== null) after(connect, delayMs);
    transport.disconnect();
    owner.down();
    // Nothing is changed after this: a handler may have begun another attempt.
    if (wasUp) owner.tell("connection:down", { reason, delayMs });
    tell?.();
  }

  /** Return the time until the next attempt, which is also the least. @param {number | undefined} afterS that the gateway has named, if it has */
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

  /** Connect now, unless connecting or connected. After a refusal, a pause or a wait it starts afresh. */
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
   * @returns {Promise<any>} rejected with HeadgateError: the gateway's refusal; `disconnected`, `timeout`; where the body has an id and was sent, `outcome_unknown`
   */
  async function request(name, body) {
    if (life.is("closed")) throw new HeadgateError("closed");
    if (!isUp()) throw disconnected();
    const mine = generation;
    const { data, ephemeral, timeout_ms, ...named } = body;
    let answer;
    unanswered++;
    try {
      // The gateway ends a request of the application in time, and reports it.
      answer = await transport.request(name, body, timeout_ms + PROBE_MS || requestTimeoutMs);
    } catch (error) {
      if (error instanceof HeadgateError) throw error;
      const reason = mine === generation ? "timeout" : "disconnected";
      // To try it again could do it twice, but by its id.
      if (named.id && !ephemeral) throw new HeadgateError("outcome_unknown", { ...named, reason }, false, undefined, error);
      throw new HeadgateError(reason, { request: name }, true, undefined, error);
    } finally {
      unanswered--;
    }
    const { error, ok, ...reply } = answer;
    if (error) throw fromWire(error);
    return reply;
  }

  function scheduleRefresh() {
    if (tokens.asks) refreshIn(refreshDelayMs(shown, Date.now()));
  }

  /**
   * Each failure is reported. When none succeeds, or the gateway refuses the token, the present one expires, the gateway
   * disconnects, and CONNECT brings a new one.
   * @param {number | null} delayMs @param {number} [failures]
   */
  function refreshIn(delayMs, failures = 0) {
    clearTimeout(refreshTimer);
    if (delayMs) refreshTimer = startTimer(renew, delayMs, failures);
  }

  /** Bring a fresh token now, even while another is on its way, which may be older than the request. */
  function renew(failures = 0) {
    const mine = generation;
    owner.refresh().catch((/** @type {HeadgateError} */ error) => {
      if (mine !== generation) return;
      if (error.retry) refreshIn(reconnectDelayMs(failures, 1000, 60_000), failures + 1);
      owner.tell("delivery:error", { error });
    });
  }

  return {
    /** Name the owner, before the first `open`. @param {ConnectionOwner} by */
    serve(by) {
      owner = by;
    },

    /** Return the status that an application sees. */
    status,

    /** Return whether requests can be sent. */
    isUp,

    /** Return whether it was closed for good. */
    isClosed: () => life.is("closed"),

    /** Return why a client that was never connected has not come through in `connectTimeoutMs`. It goes on trying. */
    stranded: () => stranded,

    /** Return the refusal that stands. */
    refusal: () => (life.is("refused") ? refusal : undefined),

    open,

    /** Everything that had arrived was dispatched. */
    dispatched() {
      if (life.is("dispatching")) connect();
    },

    /**
     * The page or its network is back: try the connection, or make the next attempt now, though not before the time that the
     * gateway has named. A refusal stands, and nothing begins that `open` has not begun.
     * @param {number} [spreadMs] the attempt comes within this time: many pages may be notified at once
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

    /** The browser reports that its network is gone: end an attempt, and test a connection. */
    offline() {
      if (life.is("connecting", "resuming")) lost("offline");
      else transport.probe();
    },

    /** The welcome is unreadable: another kind of gateway, or a faulty one. @param {unknown} error */
    unreadable: (error) => refused(new HeadgateError("unreachable", { url: address, reason: `the welcome cannot be read: ${error}` }, true, undefined, error)),

    /** The page cannot keep up: leave, and resume once it has dispatched all messages. @param {string} reason */
    overflowed: (reason) => leave("lose", reason),

    /**
     * The gateway is about to stop: leave it later, once it has answered all requests, and connect again at once. A gateway that has no
     * time for them ends the connection.
     * @param {string} reason
     * @param {number} inMs how long to stay
     */
    move(reason, inMs) {
      if (!life.offer("move", reason)) return;
      inTurn = inMs > 0;
      const go = () => (unanswered ? after(go, POLL_MS) : leave("lose", reason, 0));
      after(go, inMs);
    },

    /**
     * The welcome has been dispatched. Return whether the connection that it belongs to is still there: then it is up.
     * @param {boolean} isLive there is nothing to catch up on
     */
    welcomed(isLive) {
      if (!life.offer(isLive ? "join" : "return")) return false;
      attempt = refusals = 0;
      wantsAnother = false;
      beganMs = Infinity;
      stranded = undefined;
      scheduleRefresh();
      return true;
    },

    /** The client has caught up with the log, or lags. @param {boolean} isLive */
    stands: (isLive) => life.offer(isLive ? "follow" : "replay"),

    request,

    /** The gateway asks for a fresh token. */
    renew,

    /** Return the token that a refresh is to show. @returns {Promise<string | null | undefined>} rejected with `token_unavailable` */
    nextToken: tokens.next,

    /**
     * Use another token: on the live connection, and for every CONNECT from now on. Without a connection the next one carries
     * it; after a refusal that is now.
     * @param {string | null | undefined} token
     * @param {boolean} given by the application, so it goes before the source
     */
    async refresh(token, given) {
      clearTimeout(refreshTimer);
      if (isUp()) await show(token, given);
      else if (given) tokens.replace(token);
      if (life.is("refused")) open();
    },

    /** Disconnect for good. */
    close() {
      leave("close", "closed", null);
      transport.close();
    },
  };

  /** @param {string | null | undefined} token @param {boolean} given */
  async function show(token, given) {
    const keep = () => (given ? tokens.replace(token) : tokens.restore());
    try {
      await request(REFRESH, { token });
    } catch (error) {
      // Without an answer the gateway may have taken it, and has not refused it.
      if (given && ["disconnected", "timeout"].includes(/** @type {HeadgateError} */ (error).code)) keep();
      if (isUp()) scheduleRefresh();
      throw error;
    }
    keep();
    if (!isUp()) return;
    shown = token;
    scheduleRefresh();
  }
}
