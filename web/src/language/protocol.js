/**
 * The wire: names of messages and shapes of their bodies. Mirrors gateway/headgate/events/wire/packets.py; docs/protocol.md describes
 * every message, and `tests/golden/wire.json` is read by both sides' tests. Fields of notices and errors are written here as the client has
 * them (field-names.js). No I/O.
 *
 * @typedef {"catch_up" | "latest" | "drop"} Overflow the policy of a subscription when its client queue is full
 * @typedef {{ offset: number, epoch?: string } | { time: number } | { last: number }} Since where in the log a subscription starts
 * @typedef {{ epoch: string, offset: number }} Position a place in the log
 * @typedef {{ pattern: string, overflow?: Overflow, since?: Since }} SubscribeRequest
 * @typedef {{ code: string, message: string, retry?: boolean, retryAfterS?: number, [part: string]: any }} WireError
 * @typedef {{ pattern: string, ok: boolean, error?: WireError }} SubscribeResult
 * @typedef {{ maxPayloadBytes?: number, inboundPerS?: number, inboundBurst?: number, [name: string]: any }} Limits
 *
 * @typedef {object} Welcome
 * @property {string} session
 * @property {string | null} [user]
 * @property {string} [own] what the topics of this user begin with, and `users.me.` stands for in a page; none: it has no topics of its own
 * @property {string} epoch
 * @property {number} offset position of the gateway's live feed; a resumed client is brought there from its own
 * @property {Limits} limits
 * @property {boolean | null} resumed null: the client did not ask to resume
 * @property {Position | null} [from] where the gateway goes on for a client that resumes; null: nowhere in the log that it knows
 * @property {SubscribeResult[]} subscriptions
 * @property {number} [heartbeatS]
 *
 * @typedef {{ id?: string | null, time: number, offset?: number, replayed?: boolean, traceparent?: string, by?: string }} EventMeta time in ms since 1970
 *
 * @typedef {object} Gap events in offsets `from` to `to` (inclusive, null when unknown) that this client did not get
 * @property {string[]} patterns
 * @property {number | null} from
 * @property {number | null} to
 * @property {number | null} count
 * @property {number | null} bytes
 * @property {"overflow" | "upstream" | "trimmed" | "rolled_back" | "log_lost" | "quarantined"} reason
 * @property {boolean} recoverable
 * @property {string} [epoch] of `rolled_back`: in which the log continues after `from - 1`
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
export const REQUEST = "request"; // of the application's own
export const CANCEL = "cancel";

/** Overflow policies, stronger first. @type {Overflow[]} */
export const OVERFLOW = ["catch_up", "latest", "drop"];

/** Reason of a gap in events that were delivered and that the log has since lost at its end. */
export const ROLLED_BACK = "rolled_back";
/** Reason of a gap in events of which the client may have some and lack others. */
export const UPSTREAM = "upstream";
/** Reason of a gap after which offsets start again, because the log itself was lost. */
export const LOG_LOST = "log_lost";
/** Reason of a gap in events that the log no longer holds. */
export const TRIMMED = "trimmed";

/** How long a gateway has for a sign of life when the network or the page was away. */
export const PROBE_MS = 2000;
