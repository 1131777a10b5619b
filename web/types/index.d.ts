/** The types of `headgate`. */
import type { AnyTopics, Meeting, Names, PayloadOf, Publishable, Subscribable, TopicOf } from "./topics.js";

export type { AnyTopics, PayloadOf, Subscribable, TopicOf } from "./topics.js";

// Events.

/** An event, the second argument of a handler. */
export interface HeadgateEvent<Data = unknown, Topic extends string = string> {
  /** The topic as published. For a handler of a pattern that begins with `users.me.`, the topic begins with `users.me.` too. */
  topic: Topic;
  data: Data;
  /** The id that its publisher chose, or that the client or the publisher library generated. `null`: it has none. */
  id: string | null;
  /** Milliseconds since 1970, by the clock of Redis. */
  time: number;
  /** The position in the log. `null`: the event is not in the log and comes only live. */
  offset: number | null;
  /** Whether the event was read from the log, after a reconnection or a gap, for `since`, or for `gate.replay`. */
  replayed: boolean;
  /** The trace of its publisher (W3C Trace Context), if it has one. */
  traceparent?: string;
  /** The user who published the event, taken from the token. Only in topics of `HEADGATE_EVENT_BY`. */
  by?: string;
  /** The pattern of the handler that was called. */
  pattern: string;
}

/** A handler of events. If the type of the payload is unknown, the handler may declare it. */
export type EventCallback<Data = unknown, Event = HeadgateEvent<Data>> = unknown extends Data
  ? { call(this: any, data: Data, event: Event): any }["call"]
  : (this: any, data: Data, event: Event) => any;
/** The events of one name, from every pattern that has a topic in common with it. */
type EventOfOne<Topics, Name extends string> = string extends Name
  ? HeadgateEvent
  : Name extends keyof Topics
    ? HeadgateEvent<Topics[Name], TopicOf<Name>>
    : [Meeting<Topics, Name>] extends [never]
      ? HeadgateEvent
      : { [Pattern in Meeting<Topics, Name> & keyof Topics]: HeadgateEvent<Topics[Pattern], TopicOf<Pattern>> }[Meeting<Topics, Name> & keyof Topics];
/** The events of a topic or pattern, as a union. `event.topic` narrows the type of `event.data`. */
export type EventOf<Topics, Name extends string> = Names<Name> extends infer Each extends string ? (Each extends unknown ? EventOfOne<Topics, Each> : never) : never;
/** The handler of a topic or pattern. */
export type HandlerOf<Topics, Name extends string> = EventCallback<PayloadOf<Topics, Name>, EventOf<Topics, Name>>;
/** Any function. */
export type Callback = (this: any, ...args: any[]) => any;
/** A name with a colon: a lifecycle event of the client, or one that the application has declared. No topic has a colon. */
export type LifecycleName = keyof NamedEvents;
/** A map of names to handlers. */
export type EventMap<Topics = AnyTopics> = { [Name in string]: Callback } & { [Name in LifecycleName]?: (...args: NamedEvents[Name]) => any } & {
  [Name in keyof Topics & string]?: HandlerOf<Topics, Name>;
};
/** The handler of a name. */
export type CallbackFor<Topics, Name extends string> = Name extends LifecycleName
  ? (this: any, ...args: NamedEvents[Name]) => any
  : Name extends "all" | `${string}:${string}`
    ? Callback
    : HandlerOf<Topics, Name>;
/** The names with a colon that are not declared. */
type Undeclared<Name> = Name extends `${string}:${string}` ? Exclude<Name, LifecycleName> : never;
/** One name, or several separated by spaces, if all names with a colon are declared. */
export type Declared<Name extends string> = [Undeclared<Names<Name>>] extends [never] ? Name : LifecycleName;
/** A map in which every name with a colon is declared. */
export type DeclaredMap<Map> = { [Name in keyof Map]: [Undeclared<Name>] extends [never] ? Map[Name] : never };

/** Your own names with a colon. Add them by `declare module "headgate"`. */
export interface ApplicationEvents {}
/** Every name with a colon. */
export interface NamedEvents extends LifecycleEvents, ApplicationEvents {}

/** The arguments of each lifecycle event. */
export interface LifecycleEvents {
  /** The gateway has welcomed the client, which can now send requests. */
  "connection:up": [welcome: Welcome];
  /** An established connection has ended. The next attempt begins after `delayMs`. `null`: none follows by itself, because the user has left the page, or the client was closed. */
  "connection:down": [end: { reason: string; delayMs: number | null }];
  /** An attempt to connect has failed. The next one begins after `delayMs`. `null`: the client has given up until `gate.open()` or `gate.refresh()`. */
  "connection:refused": [error: HeadgateError, next: { delayMs: number | null }];
  /** The gateway disconnects this client because its token has expired or was revoked. */
  "connection:unauthorized": [error: HeadgateError];
  /** The gateway is about to stop, or has too many clients. The client moves to another gateway within `withinS` seconds. */
  "connection:moving": [move: { reason: string; withinS: number; detail?: string }];
  /** Events are missing, or the log has lost events that this client has had. */
  "delivery:gap": [gap: ToldGap];
  /** A queue is filling, full, or empty again. */
  "delivery:backpressure": [notice: Backpressure];
  /** The client has resumed at its position, or (`repaired`) has fetched the events of a gap. */
  "delivery:resumed": [resumed: { epoch?: string; offset?: number; repaired?: { patterns: string[]; from: number | null; to: number | null; count: number } }];
  /** A handler threw, the gateway refused or ended a subscription, the fetch of a load failed, or a token could not be refreshed. */
  "delivery:error": [failure: DeliveryError];
  /** `gate.status` has changed. */
  "status:change": [change: StatusChange];
  /** `gate.state` has changed. An event alone does not trigger this. */
  "state:change": [state: State];
  /** An outbox (`headgate/offline`) has stored a publish. */
  "publish:queued": [notice: PublishNotice];
  /** The event is in the log. `replaces`: an earlier receipt of this publish; the log has lost its event. */
  "publish:receipt": [notice: PublishNotice & { receipt: Receipt; replaces?: Receipt | undefined }];
  /** The event was not published. With `outcome_unknown` it may have been, or may be lost since its receipt. */
  "publish:refused": [notice: PublishNotice & { error: HeadgateError }];
}

/** A publish of an outbox. */
export interface PublishNotice {
  id: string;
  topic: string;
  data: any;
  /** Whether an earlier page or another tab made this publish. */
  restored: boolean;
}

/** `topic`: the name whose handler threw. `pattern`: a refused subscription, or a load whose fetch failed. Neither: a token that could not be refreshed. */
export interface DeliveryError {
  error: any;
  pattern?: string;
  topic?: string;
}

/** The gateway's first message on each connection. */
export interface Welcome {
  session: string;
  user?: string | null;
  /** The prefix of this user's topics, for which `users.me.` stands. Missing without a token. */
  own?: string;
  epoch: string;
  /** The position of the gateway's live feed. */
  offset: number;
  limits: Limits;
  /** `true`: everything after the client's position follows. `false`: some of it is lost, and a gap follows. `null`: the client did not ask to resume. */
  resumed: boolean | null;
  /** Where the gateway continues for a client that resumes. `null`: nowhere in the log that the client knows. */
  from?: Position | null;
  /** The answers to the subscriptions that the client requested when it connected. */
  subscriptions: { pattern: string; ok: boolean; error?: { code: string; message: string; [part: string]: any } }[];
  /** An idle client gets a message of the gateway at least this often, in seconds. */
  heartbeatS?: number;
}

/** Events that this client did not get, or (`rolled_back`) that it may have had and the log has lost. */
export interface Gap {
  /** The subscribed patterns that the gap concerns. Empty: all of them. */
  patterns: string[];
  /** The first offset. `null`: unknown. */
  from: number | null;
  /** The last offset. `null`: unknown. */
  to: number | null;
  /** The number of missing events for `overflow`, else the number of offsets in the range. `null`: unknown. */
  count: number | null;
  bytes: number | null;
  /**
   * `overflow`: the client's queue was full. `upstream`: the gateway failed while it delivered them. `trimmed`: the log no longer holds them. `rolled_back`: Redis has lost
   * the end of the log. `log_lost`: the whole log is gone. `quarantined`: events in the log cannot be delivered.
   */
  reason: "overflow" | "upstream" | "trimmed" | "rolled_back" | "log_lost" | "quarantined";
  /** Whether the log still holds the events. */
  recoverable: boolean;
  /** For `rolled_back`: the epoch in which the log continues. */
  epoch?: string;
}

/** A gap, and its fate. If it is neither `repairing` nor `lost`, its events are in the log and `gate.replay` can fetch them. */
export interface ToldGap extends Gap {
  /** The client fetches its events from the log, and `delivery:resumed` reports the end. */
  repairing: boolean;
  /** Its events will not come. */
  lost: boolean;
  /** `iterator`: a loop over `events` was too slow. Missing otherwise. */
  where?: "iterator";
}

/** The state of a queue: the gateway's for this client, or the one in the page. */
export interface Backpressure {
  /** `warning`: three quarters full. `on`: full. `off`: events are delivered as they come again. */
  state: "warning" | "on" | "off";
  /** Messages in the queue. */
  queued: number;
  queuedBytes: number;
  /** Events dropped since the client connected. */
  discarded: number;
  /** Older events that a newer one of their topic has replaced (`latest`). */
  conflated?: number;
  where: "gateway" | "browser";
}

/** Limits of the gateway. docs/protocol.md lists all of them, and docs/settings.md explains them. */
export interface Limits {
  maxPayloadBytes?: number;
  inboundPerS?: number;
  inboundBurst?: number;
  publishPerS?: number;
  publishBurst?: number;
  ephemeralPerS?: number;
  requestsPerS?: number;
  maxRequests?: number;
  requestTimeoutS?: number;
  readPerS?: number;
  readBurst?: number;
  maxClientsPerUser?: number;
  maxClientsPerAddress?: number;
  logMaxEvents?: number;
  logMaxAgeS?: number;
  logMaxBytes?: number;
  [name: string]: any;
}

/** A place in the log. */
export interface Position {
  epoch: string;
  offset: number;
}

// State.

/**
 * The state of the connection.
 *
 * `idle`: `open` has not been called. `connecting`, `resuming`: an attempt is under way. `live`: events come as they are published. `catching_up`: the gateway reads missed
 * events from the log. `moving`: connected, about to move to another gateway. `waiting`: the next attempt follows by itself. `paused`: the user has left the page and may
 * return. `refused`: only `open` or another token leads to another attempt. `closed`: `close` was called.
 */
export type Status = "idle" | "connecting" | "resuming" | "live" | "catching_up" | "moving" | "waiting" | "paused" | "refused" | "closed";
/** A change of the status. */
export interface StatusChange {
  status: Status;
  previous: Status;
  /** Why a connection or an attempt has ended. Otherwise the step of the client, such as `join`. */
  reason: string;
}
/** The state of the connection in coarser words. `up`: requests can be sent. */
export type ConnectionState = "connecting" | "up" | "waiting" | "refused" | "paused" | "closed";
/**
 * Where the client stands in the log. `none`: it has no position yet. `announced`: the log is another one or has lost its end, and the gap that reports it has not been
 * dispatched yet.
 */
export type Standing = "none" | "live" | "resuming" | "catching_up" | "announced";
/**
 * The state of a subscription.
 *
 * `wanted`: the gateway has not been asked yet. `requested`: the request is under way. `active`: the gateway has acknowledged it. `changed`: it is active, and its handlers
 * want it otherwise now. `releasing`: the request to end it is under way. `suspended`: the connection is gone; the next one carries it. `waiting`: the gateway's limit on
 * subscriptions is reached. `retrying`: refused or ended for a passing reason; the client asks again. `refused`: the gateway does not grant it. `idle`: there is none.
 */
export type SubscriptionState = "wanted" | "requested" | "active" | "changed" | "releasing" | "suspended" | "waiting" | "retrying" | "refused" | "idle";

/** A snapshot of the client. */
export interface State {
  status: Status;
  connection: ConnectionState;
  position: Standing;
  /** The gateway's link to Redis. */
  bus: "up" | "down";
  /** Of the latest connection. `null`: there was none. */
  session: string | null;
  /** The user of the token. `null` without a token, or before the first connection. */
  user: string | null;
  /** With `offset`, the position that a later page may pass as `resume`. */
  epoch: string | null;
  offset: number | null;
  /** The state of each pattern that has handlers. */
  subscriptions: Record<string, SubscriptionState>;
  limits: Limits;
  /** Events for which handlers were called. */
  received: number;
  /** Messages that wait for the page. */
  waiting: number;
  /** Reported gaps. */
  gaps: number;
  /** Events of these gaps that were not repaired, as far as their number is known. */
  missed: number;
}

// Errors.

/** The codes of the errors (docs/protocol.md, "Errors"). */
export type ErrorCode =
  | "invalid_topic"
  | "invalid_pattern"
  | "invalid_event"
  | "invalid_request"
  | "not_serializable"
  | "payload_too_large"
  | "schema_violation"
  | "unauthorized"
  | "forbidden"
  | "authorize_failed"
  | "limit_reached"
  | "unknown_host"
  | "origin_not_allowed"
  | "unknown_namespace"
  | "request_timeout"
  | "unknown_request"
  | "timed_out"
  | "request_failed"
  | "bus_unavailable"
  | "bus_refused"
  | "overloaded"
  | "paused"
  | "disconnected"
  | "timeout"
  | "closed"
  | "token_unavailable"
  | "invalid_address"
  | "unreachable"
  | "expired"
  | "discarded"
  | "outcome_unknown"
  | "storage_failed"
  | "refused";

/** The parts of an error, by its code. */
export interface ErrorParts {
  invalid_topic: { topic: string; reason: string };
  invalid_pattern: { pattern: string; reason: string };
  invalid_event: { field: string; reason: string };
  invalid_request: { reason: string };
  not_serializable: { reason: string; path?: string };
  payload_too_large: { size: number; limit: number; where: string };
  schema_violation: { topic: string; pattern: string; path: string; reason: string };
  unauthorized: { reason: string; claim?: string };
  forbidden: { action: string; name: string };
  authorize_failed: { action: string; name: string; retryAfterS?: number };
  limit_reached: { name: string; limit: number; retryAfterS?: number };
  unknown_host: { host: string };
  origin_not_allowed: { origin: string };
  unknown_namespace: { namespace: string; known?: string[] };
  unknown_request: { name: string };
  timed_out: { name: string; timeoutS: number };
  request_failed: { name: string; reason: string };
  bus_unavailable: { reason: string };
  bus_refused: { reason: string };
  paused: { what: string; namespace?: string };
  disconnected: { request?: string; pattern?: string };
  timeout: { request?: string; where?: string; pattern?: string; timeoutMs?: number };
  closed: { kept?: boolean };
  token_unavailable: { reason: unknown };
  invalid_address: { url: string; reason: string };
  unreachable: { url: string; reason: string };
  expired: { id: string; topic: string; reason: string };
  discarded: { id: string; topic: string; reason: string };
  /** `topic` of a publish, `name` of a request. */
  outcome_unknown: { id: string; reason: string; topic?: string; name?: string };
  storage_failed: { topic: string; reason: string };
}

/** An error of one code. */
export interface CodedError<Code extends ErrorCode> extends Error {
  readonly code: Code;
  /** Whether trying the same again can help. */
  readonly retry: boolean;
  /** The numbers and names that the message is built from. */
  readonly parts: (Code extends keyof ErrorParts ? ErrorParts[Code] : {}) & Record<string, any>;
}

/** The only error class of the client. The code narrows the type of `parts`. */
export type HeadgateError = { [Code in ErrorCode]: CodedError<Code> }[ErrorCode];
/** The class of these errors. */
export const HeadgateError: {
  new (code: ErrorCode, parts?: Record<string, any>, retry?: boolean, message?: string, cause?: unknown): HeadgateError;
  readonly prototype: HeadgateError;
};

// Options.

/**
 * What happens when the client's queue at the gateway is full. `catch_up`: the gateway continues from the log, and nothing is lost. `latest`: only the newest event of
 * each topic is kept. `drop`: events are left out, and a gap reports them.
 */
export type Overflow = "catch_up" | "latest" | "drop";
/** Where in the log a subscription starts. After an offset, at a time (milliseconds since 1970), or with the last events of the pattern. */
export type Since = { offset: number; epoch?: string | undefined } | { time: number } | { last: number };
/** `null`, `undefined`: the client is anonymous. */
type Token = string | null | undefined;
/** The answer of `fetch`, whose text is the token. If it has failed, as in `ok`, or is HTML, the client calls the function again later. */
type TokenAnswer = { ok: boolean; status: number; text: () => Promise<string> };
/** A token, or a function that returns one, such as `() => fetch("/token")`. */
export type TokenSource = Token | (() => Token | TokenAnswer | Promise<Token | TokenAnswer>);

/** Options of `connect`. */
export interface ConnectOptions {
  /** Default `notifications`. */
  namespace?: string | undefined;
  /** Default `true`. `false`: nothing connects before `gate.open()`. */
  autoConnect?: boolean | undefined;
  /** A token, or a function that the client calls at each connect and before the token expires. */
  token?: TokenSource;
  /** Least time between two attempts, default 500. */
  reconnectDelayMinMs?: number | undefined;
  /** Most time between two attempts, default 20000. The time is random, and its bound doubles with each failure up to this. */
  reconnectDelayMaxMs?: number | undefined;
  /** Time for the answer to a request, and for its turn, default 10000. */
  requestTimeoutMs?: number | undefined;
  /** Time of an attempt until the gateway's welcome, default 20000. */
  connectTimeoutMs?: number | undefined;
  /** Messages that may wait for a busy page, default 10000. With that many, the client disconnects, dispatches them, and resumes. */
  inboxLimit?: number | undefined;
  /** Additional fields of CONNECT's auth object, for your own authenticator. */
  auth?: Record<string, any> | undefined;
  /** The position where an earlier page of this user stopped, from its `gate.state`. `null`: none. */
  resume?: Position | Pick<State, "epoch" | "offset"> | null | undefined;
  /** Called once for each gap whose events will not come, so that the page fetches its state again. */
  resync?: ((gap: ToldGap) => void) | undefined;
  /** `websocket`: only a WebSocket. `stream`: over HTTP from the start. `socket.io`: `socket.io-client` from the start. Default: a WebSocket, and HTTP where none gets through. */
  transport?: "websocket" | "stream" | "socket.io" | undefined;
  /** Your own `socket.io-client`, used from the start. */
  io?: any;
  /** The path of the endpoint, default `/socket.io`. */
  path?: string | undefined;
  /** The transports of `socket.io-client`, which is used from the start. */
  transports?: ("websocket" | "polling")[] | undefined;
  /** Further options of `socket.io-client`, which is used from the start. */
  socketOptions?: Record<string, any> | undefined;
  /** A class that replaces the browser's, such as that of `ws`. */
  WebSocket?: any;
}

/** Options of `on` and `once`. */
export interface HandlerOptions {
  /** Default `catch_up`. The strongest policy of a pattern's handlers counts. */
  overflow?: Overflow | undefined;
  /** Default `true`. `false`: the application handles gaps of this pattern. */
  repair?: boolean | undefined;
  /** Past events to begin with. */
  since?: Since | undefined;
}

/** Options of a subscription. */
export interface SubscribeOptions extends HandlerOptions {
  /** Ends the subscription. */
  signal?: AbortSignal | undefined;
}

/** Options of `events`. */
export interface EventsOptions extends SubscribeOptions {
  /** Events that may wait for the loop, default 256. Beyond it the oldest are dropped, and `delivery:gap` reports them. */
  limit?: number | undefined;
}

/**
 * `loading`: there is no answer yet. `behind`: events may be missing from the state. `current`: none is missing. `failed`: the fetch fails, or the gateway refuses the
 * pattern. `closed`: it was closed, or its gate was.
 */
export type LoadStatus = "loading" | "behind" | "current" | "failed" | "closed";

/** Options of `load`. */
export interface LoadOptions<Data = any, Answer = any> {
  /** Replaces the state by an answer. If it throws, the fetch counts as failed. */
  reset: (answer: Answer) => void;
  /** Applies an event to the state. An event may come again after an answer that includes it already, so set values and do not count. */
  apply: (data: Data, event: HeadgateEvent<Data>) => void;
  /** Called when `status` or `error` has changed. */
  changed?: ((load: Load) => void) | undefined;
  /** The position at which the state that came with the page was read. Events follow from there, and nothing is fetched at first. */
  since?: Position | undefined;
  /** Closes the load. */
  signal?: AbortSignal | undefined;
  /** Time for a fetch to settle, default 30000. */
  timeoutMs?: number | undefined;
  /** A fetch after a loss waits a random time up to this, default 1000, so that pages do not all ask at once. */
  resyncSpreadMs?: number | undefined;
}

/** A state that is fetched and then changed by events. `using` closes it at the end of the block. */
export interface Load extends Disposable {
  readonly pattern: string;
  readonly status: LoadStatus;
  /** Why the fetch fails or the gateway refuses the pattern. `null`: neither. */
  readonly error: any;
  /** Fetch again: now, also without a connection, or after the running fetch. */
  reload(): void;
  /** Stop. No function of the options is called after this, except `changed` with the status `closed`. */
  close(): void;
}

/** A range of offsets, both inclusive. The gateway refuses that of a gap without offsets. */
export interface Range {
  from: number | null;
  to: number | null;
  /** The epoch of these offsets, default the present one. */
  epoch?: string | undefined;
}

/** The receipt of a publish: the position of the event in the log. */
export interface Receipt {
  epoch: string;
  offset: number;
  /** Whether the log already held an event with this id on this topic. The position is that of the first one. */
  duplicate?: boolean;
}

// TypeScript declares these only with the library `esnext.disposable`.
declare global {
  interface SymbolConstructor {
    readonly dispose: unique symbol;
  }
  interface Disposable {
    [Symbol.dispose](): void;
  }
}

/** The subscription of one handler. `using` closes it at the end of the block. */
export interface Subscription extends Disposable {
  readonly pattern: string;
  /** The state of the pattern's subscription. `idle` after `close`. */
  readonly status: SubscriptionState;
  /**
   * Resolved when the pattern is active: no event is missing from then on. Rejected with a `HeadgateError` when the gateway refuses the pattern or the client, when a client
   * that was never connected has tried for `connectTimeoutMs`, and after `close`.
   */
  readonly ready: Promise<void>;
  /** End this subscription and no other. */
  close(): void;
}

// The interface.

/** A dispatcher, or any object with Backbone.Events. */
export interface Listenable {
  on: Function;
  off: Function;
}

/** The interface of Backbone.Events. A handler that throws does not stop the others. */
export class Dispatcher<Topics = AnyTopics> {
  /** Bind a handler to a name, several names separated by spaces, or a map of names to handlers. `all` gets everything. A topic or pattern subscribes, as `subscribe` does. */
  on<Name extends LifecycleName>(name: Name, callback: (this: any, ...args: NamedEvents[Name]) => any, context?: any): this;
  on<Name extends keyof Topics & string>(name: Name, callback: HandlerOf<Topics, Name>, context?: any, options?: HandlerOptions): this;
  on<const Name extends string>(name: Name & Declared<Name> & Subscribable<Topics, Name>, callback: CallbackFor<Topics, Name>, context?: any, options?: HandlerOptions): this;
  on<Map extends EventMap<Topics>>(names: EventMap<Topics> & Map & DeclaredMap<Map>, context?: any): this;
  /** Remove the application's handlers that match name, handler and context. Omit any of them to match all. Loads, rooms and stores keep their handlers until they are closed. */
  off<Name extends string>(name?: (Name & Declared<Name>) | null, callback?: Callback | null, context?: any): this;
  off<Map extends { [name: string]: Callback }>(names: Map & DeclaredMap<Map>, context?: any): this;
  /** Bind a handler for one call for each name. */
  once<Name extends LifecycleName>(name: Name, callback: (this: any, ...args: NamedEvents[Name]) => any, context?: any): this;
  once<Name extends keyof Topics & string>(name: Name, callback: HandlerOf<Topics, Name>, context?: any, options?: HandlerOptions): this;
  once<const Name extends string>(name: Name & Declared<Name> & Subscribable<Topics, Name>, callback: CallbackFor<Topics, Name>, context?: any, options?: HandlerOptions): this;
  once<Map extends EventMap<Topics>>(names: EventMap<Topics> & Map & DeclaredMap<Map>, context?: any): this;
  /** Backbone's old name for `on`. */
  bind: this["on"];
  /** Backbone's old name for `off`. */
  unbind: this["off"];
  /** Bind a handler to another object. `stopListening` removes it. */
  listenTo<Name extends LifecycleName>(other: Dispatcher<any>, name: Name, callback: (this: any, ...args: NamedEvents[Name]) => any): this;
  listenTo<const Name extends string>(other: Dispatcher<any>, name: Name & Declared<Name>, callback: Callback): this;
  listenTo<Map extends EventMap<any>>(other: Dispatcher<any>, names: EventMap<any> & Map & DeclaredMap<Map>): this;
  listenTo(other: Listenable & { dispatch?: never }, name: string | { [name: string]: Callback }, callback?: Callback): this;
  /** Bind a handler to another object for one call for each name. */
  listenToOnce<Name extends LifecycleName>(other: Dispatcher<any>, name: Name, callback: (this: any, ...args: NamedEvents[Name]) => any): this;
  listenToOnce<const Name extends string>(other: Dispatcher<any>, name: Name & Declared<Name>, callback: Callback): this;
  listenToOnce<Map extends EventMap<any>>(other: Dispatcher<any>, names: EventMap<any> & Map & DeclaredMap<Map>): this;
  listenToOnce(other: Listenable & { dispatch?: never }, name: string | { [name: string]: Callback }, callback?: Callback): this;
  /** Remove what `listenTo` has bound: to one object or all, one name or handler or all. */
  stopListening(other?: Listenable | null, name?: string | { [name: string]: Callback } | null, callback?: Callback): this;
  /** Call the handlers of exactly this name, and those of `all`. No pattern is matched, and nothing is published. */
  trigger(name: string | Record<string, any>, ...args: any[]): this;
  /** Call the handlers of every pattern that matches a topic, and return their number. Each is called at most once per context. `describe` makes the second argument. */
  dispatch(topic: string, data: any, describe: (pattern: string) => any, admits?: (pattern: string) => boolean, alias?: string): number;
}

/** A dispatcher that subscribes its topics and patterns at the gateway. `connect` returns one. */
export class Gate<Topics = AnyTopics> extends Dispatcher<Topics> {
  constructor(address: string, options: ConnectOptions);
  /** Origin and namespace, such as `https://example.com/notifications`. */
  readonly address: string;
  /** The state of the connection. `status:change` reports each change. */
  readonly status: Status;
  /** Whether the gateway takes requests now. */
  readonly isUp: boolean;
  /** A snapshot of the client. `state:change` reports a change. */
  readonly state: State;
  /** Connect now, if the client is not connected or connecting. Use it at the start, after a refusal, or instead of waiting for the next attempt. */
  open(): this;
  /** Subscribe a handler to a topic or pattern. Two subscriptions of one handler are separate. Throws `invalid_pattern`, or a TypeError for an option. */
  subscribe<Name extends keyof Topics & string>(pattern: Name, handler: HandlerOf<Topics, Name>): Subscription;
  subscribe<Name extends keyof Topics & string>(pattern: Name, options: SubscribeOptions, handler: HandlerOf<Topics, Name>): Subscription;
  subscribe<Name extends string>(pattern: Name & Subscribable<Topics, Name>, handler: HandlerOf<Topics, Name>): Subscription;
  subscribe<Name extends string>(pattern: Name & Subscribable<Topics, Name>, options: SubscribeOptions, handler: HandlerOf<Topics, Name>): Subscription;
  /** Wait until a pattern with handlers is active. Rejected as `ready` of a subscription, and with `disconnected` if the pattern has no handler. */
  subscribed(pattern: string): Promise<void>;
  /**
   * Publish an event, if the token grants it. Rejected with a `HeadgateError`. `outcome_unknown`: it was sent, and its answer is lost. Publish it again with the same `id`, and
   * the log holds it once.
   *
   * `id`: default a new one. `echo: false`: this page's own handlers do not get the event. `ephemeral`: the event reaches only the pages that are connected now, and is not in
   * the log; the promise resolves with its id alone.
   */
  publish<Topic extends string>(topic: Topic & Publishable<Topics, Topic>, data: PayloadOf<Topics, Topic>, options: { id?: string | undefined; echo?: boolean | undefined; ephemeral: true }): Promise<{ id: string }>;
  publish<Topic extends string>(topic: Topic & Publishable<Topics, Topic>, data: PayloadOf<Topics, Topic>, options?: { id?: string | undefined; echo?: boolean | undefined }): Promise<Receipt>;
  /** Report which events the user has seen, by their ids, at most 100, so that a consumer does not mail them. Only for users with a token. */
  seen(ids: string[]): Promise<{ seen: number }>;
  /** Dispatch a range of the log again, to the handlers of one pattern, marked `replayed`. Resolved with the number of events. A gap of `delivery:gap` is a range. */
  replay(pattern: string, range: Range): Promise<number>;
  /**
   * Use another token, on this connection and for the next ones. Without one the client asks the `token` option. Without a connection, the next one uses the token; a
   * refused client connects at once. Rejected with the gateway's refusal, or `token_unavailable`.
   */
  refresh(token?: string | null): Promise<void>;
  /** Disconnect for good. No timer, listener or handler is left. */
  close(): void;
}

/**
 * Connect to a gateway, after the present task. `url` is its origin, such as `https://example.com`, default the page's own. `Topics` maps patterns to payloads. Throws
 * `invalid_address`, or a TypeError for an option.
 */
export function connect<Topics = AnyTopics>(url?: string | undefined, options?: ConnectOptions): Gate<Topics>;
/**
 * The events of a pattern, for `for await`. The pattern is subscribed from the first turn until the loop is left, `signal` aborts, or the gate closes. The loop throws if the
 * gateway refuses the pattern.
 */
export function events<Topics, Name extends string>(
  gate: Gate<Topics>,
  pattern: Name & Subscribable<Topics, Name>,
  options?: EventsOptions,
): AsyncIterableIterator<EventOf<Topics, Name>>;
/**
 * Fetch a state when the pattern is active, and apply each event from then on. The state is fetched again after a loss that nothing repairs. A failed fetch is reported by
 * `delivery:error` and repeated. If the answer has a `position`, read from the log before the state, events up to there are skipped.
 */
export function load<Topics, Name extends string, Answer = any>(
  gate: Gate<Topics>,
  pattern: Name & Subscribable<Topics, Name>,
  fetch: (how: { signal: AbortSignal }) => Answer | Promise<Answer>,
  options: LoadOptions<PayloadOf<Topics, Name>, Answer>,
): Load;
/** Return a valid topic unchanged. Throws `invalid_topic`. */
export function checkTopic(topic: unknown): string;
/** Return a copy of the data as plain JSON. Throws `not_serializable` for a value that JSON would change, and `payload_too_large` above `limit` bytes (default: none). */
export function checkPayload(data: unknown, limit?: number): any;
/** Return a valid pattern unchanged. Throws `invalid_pattern`. */
export function checkPattern(pattern: unknown): string;
/** Return the word that stands for a user in topics, such as `ana__40example__2eorg` for `ana@example.org`. Throws `invalid_request`. */
export function userWord(name: string): string;
/** Return whether a topic matches a pattern. */
export function matches(pattern: string, topic: string): boolean;
