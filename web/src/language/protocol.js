/**
 * The wire: names of messages and shapes of their bodies. No I/O. It mirrors gateway/headgate/events/wire/packets.py. docs/protocol.md describes every
 * message, and the tests of both sides read `tests/golden/wire.json`. Fields of notices and errors are in camelCase here (field-names.js).
 *
 * @typedef {"catch_up" | "latest" | "drop"} Overflow the policy of a subscription when its client queue is full
 * @typedef {{ offset: number, epoch?: string } | { time: number } | { last: number }} Since where in the log a subscription starts
 * @typedef {{ epoch: string, offset: number }} Position a place in the log
 * @typedef {{ pattern: string, overflow?: Overflow, since?: Since }} SubscribeRequest
 * @typedef {{ code: string, message: string, retry?: boolean, retryAfterS?: number, [part: string]: any }} WireError
 * @typedef {{ pattern: string, ok: boolean, after?: number, error?: WireError }} SubscribeResult `after`: the offset after which the requested past begins
 * @typedef {{ maxPayloadBytes?: number, inboundPerS?: number, inboundBurst?: number, [name: string]: any }} Limits
 *
 * @typedef {object} Welcome
 * @property {string} session
 * @property {string | null} [user]
 * @property {string} [own] the prefix of this user's topics, for which `users.me.` stands in a page; missing without a token
 * @property {string} epoch
 * @property {number} offset position of the gateway's live feed, to which a resumed client catches up
 * @property {Limits} limits
 * @property {boolean | null} resumed null: the client did not ask to resume
 * @property {Position | null} [from] where the gateway continues for a client that resumes; null: nowhere in the log that the client knows
 * @property {SubscribeResult[]} subscriptions
 * @property {number} [heartbeatS]
 *
 * @typedef {{ id?: string | null, time: number, offset?: number, replayed?: boolean, traceparent?: string, by?: string }} EventMeta time in ms since 1970
 *
 * @typedef {object} Gap events in offsets `from` to `to` (inclusive; null: unknown) that this client did not get
 * @property {string[]} patterns
 * @property {number | null} from
 * @property {number | null} to
 * @property {number | null} count
 * @property {number | null} bytes
 * @property {"overflow" | "upstream" | "trimmed" | "rolled_back" | "log_lost" | "quarantined"} reason
 * @property {boolean} recoverable
 * @property {string} [epoch] for `rolled_back`: the epoch in which the log continues after `from - 1`
 *
 * @typedef {{ state: "warning" | "on" | "off", queued: number, queuedBytes: number, discarded: number, conflated?: number }} Backpressure
 * @typedef {{ bus?: "up" | "down", moving?: { reason: string, withinS: number, detail?: string }, ended?: { pattern: string, error: WireError }[],
 *   granted?: boolean, refresh?: { withinS: number }, unauthorized?: WireError }} Status `ended`: subscriptions that its grants no longer cover; `granted`: these are new;
 *   `refresh`: the gateway asks for a fresh token; `unauthorized`: why it disconnects this client
 */

// Server → client.
export const WELCOME = "welcome";
export const EVENT = "event";
export const GAP = "gap";
export const BACKPRESSURE = "backpressure";
export const CURSOR = "cursor";
export const STATUS = "status";
export const PRESENCE = "presence"; // in both directions
export const HANDLED = "handled"; // in both directions

// Client → server, each acknowledged with {ok: true, …} or {ok: false, error: {code, message, …}}.
export const SUBSCRIBE = "subscribe";
export const UNSUBSCRIBE = "unsubscribe";
export const PUBLISH = "publish";
export const REFRESH = "refresh";
export const SEEN = "seen";
export const INBOX = "inbox";
export const REPLAY = "replay";
export const HISTORY = "history";
export const REQUEST = "request"; // headgate/request
export const CANCEL = "cancel";

/** Overflow policies, stronger first. @type {Overflow[]} */
export const OVERFLOW = ["catch_up", "latest", "drop"];

/** Reason of a gap: the log has lost its end since these events were delivered. */
export const ROLLED_BACK = "rolled_back";
/** Reason of a gap: the client may have some of these events and lack others. */
export const UPSTREAM = "upstream";
/** Reason of a gap: the log was lost, and offsets start again. */
export const LOG_LOST = "log_lost";
/** Reason of a gap: the log no longer holds these events. */
export const TRIMMED = "trimmed";

/** Time for a sign of life of the gateway, when the network has changed or the page returns. */
export const PROBE_MS = 2000;
