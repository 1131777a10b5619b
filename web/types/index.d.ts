/** The types of `headgate`. */
import type { AnyTopics, Meeting, Names, PayloadOf, Publishable, Subscribable, TopicOf } from "./topics.js";

export type { AnyTopics, PayloadOf, Subscribable, TopicOf } from "./topics.js";

// Events.

/** An event, the second argument of a handler. */
export interface HeadgateEvent<Data = unknown, Topic extends string = string> {
  /** As it was published; it begins with `users.me.` for a handler of a pattern that does. */
  topic: Topic;
  data: Data;
  id: string | null;
  /** Milliseconds since 1970, by the clock of the log. */
  time: number;
  /** `null`: live only, not in the log. */
  offset: number | null;
  replayed: boolean;
  /** The trace of its publisher (W3C Trace Context), if it has one. */
  traceparent?: string;
  /** The user who published it, as the gateway knows it, in topics of `HEADGATE_EVENT_BY`. */
  by?: string;
  /** The pattern of the handler that gets it. */
  pattern: string;
}

/** A handler of events. Of an unknown payload it may say the type itself. */
export type EventCallback<Data = unknown, Event = HeadgateEvent<Data>> = unknown extends Data
  ? { call(this: any, data: Data, event: Event): any }["call"]
  : (this: any, data: Data, event: Event) => any;
/** The events of one name: of each pattern that it meets. */
type EventOfOne<Topics, Name extends string> = string extends Name
  ? HeadgateEvent
  : Name extends keyof Topics
    ? HeadgateEvent<Topics[Name], TopicOf<Name>>
    : [Meeting<Topics, Name>] extends [never]
      ? HeadgateEvent
      : { [Pattern in Meeting<Topics, Name> & keyof Topics]: HeadgateEvent<Topics[Pattern], TopicOf<Pattern>> }[Meeting<Topics, Name> & keyof Topics];
/** The events of a topic or pattern: `event.topic` says which payload `event.data` is. */
export type EventOf<Topics, Name extends string> = Names<Name> extends infer Each extends string ? (Each extends unknown ? EventOfOne<Topics, Each> : never) : never;
/** The handler of a topic or pattern. */
export type HandlerOf<Topics, Name extends string> = EventCallback<PayloadOf<Topics, Name>, EventOf<Topics, Name>>;
/** A handler of anything. */
export type Callback = (this: any, ...args: any[]) => any;
/** A name with a colon, which no topic has: of the client, or of your own. */
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
/** Those of some names that have a colon and are not declared. */
type Undeclared<Name> = Name extends `${string}:${string}` ? Exclude<Name, LifecycleName> : never;
/** A name, or several with spaces, if those with a colon are declared. */
export type Declared<Name extends string> = [Undeclared<Names<Name>>] extends [never] ? Name : LifecycleName;
/** A map in which every name with a colon is declared. */
export type DeclaredMap<Map> = { [Name in keyof Map]: [Undeclared<Name>] extends [never] ? Map[Name] : never };

/** Names of your own with a colon: `declare module "headgate"` adds them. */
export interface ApplicationEvents {}
/** Every name with a colon. */
export interface NamedEvents extends LifecycleEvents, ApplicationEvents {}

/** The arguments of each lifecycle event. */
export interface LifecycleEvents {
  "connection:up": [welcome: Welcome];
  "connection:down": [end: { reason: string; delayMs: number | null }];
  "connection:refused": [error: HeadgateError, next: { delayMs: number | null }];
  "connection:unauthorized": [error: HeadgateError];
  "connection:moving": [move: { reason: string; withinS: number; detail?: string }];
  "delivery:gap": [gap: ToldGap];
  "delivery:backpressure": [notice: Backpressure];
  "delivery:resumed": [resumed: { epoch?: string; offset?: number; repaired?: { patterns: string[]; from: number | null; to: number | null; count: number } }];
  "delivery:error": [failure: DeliveryError];
  "status:change": [change: StatusChange];
  "state:change": [state: State];
  /** An outbox (`headgate/offline`) has kept a publish. */
  "publish:queued": [notice: PublishNotice];
  /** The event is in the log. `replaces` is its earlier receipt, whose event the log has lost. */
  "publish:receipt": [notice: PublishNotice & { receipt: Receipt; replaces?: Receipt | undefined }];
  /** It was not published; with `outcome_unknown` it may have been, or be lost since its receipt. */
  "publish:refused": [notice: PublishNotice & { error: HeadgateError }];
}

/** A publish of an outbox. */
export interface PublishNotice {
  id: string;
  topic: string;
  data: any;
  /** A page that has ended has published it. */
  restored: boolean;
}

/** A handler that threw (`topic`), a refused subscription or a failed load (`pattern`). */
export interface DeliveryError {
  error: any;
  pattern?: string;
  topic?: string;
}

/** The gateway's first message on each connection. */
export interface Welcome {
  session: string;
  user?: string | null;
  /** What the topics of this user begin with, and `users.me.` stands for. */
  own?: string;
  epoch: string;
  offset: number;
  limits: Limits;
  /** `null`: the client did not ask to resume. */
  resumed: boolean | null;
  from?: Position | null;
  subscriptions: { pattern: string; ok: boolean; error?: { code: string; message: string; [part: string]: any } }[];
  heartbeatS?: number;
}

/** Events in offsets `from` to `to` that this client did not get. */
export interface Gap {
  patterns: string[];
  from: number | null;
  to: number | null;
  count: number | null;
  bytes: number | null;
  reason: "overflow" | "upstream" | "trimmed" | "rolled_back" | "log_lost" | "quarantined";
  recoverable: boolean;
  /** Of `rolled_back`: in which the log goes on. */
  epoch?: string;
}

/** A gap, and what becomes of it. */
export interface ToldGap extends Gap {
  /** Its events are being fetched from the log. */
  repairing: boolean;
  /** Its events will not come. */
  lost: boolean;
  /** `iterator`: a loop over `events` was too slow. */
  where?: "iterator";
}

/** A full queue, of the gateway for this client or in the page. */
export interface Backpressure {
  state: "warning" | "on" | "off";
  queued: number;
  queuedBytes: number;
  discarded: number;
  conflated?: number;
  where: "gateway" | "browser";
}

/** Limits of the gateway. */
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

/** The connection in one word. */
export type Status = "idle" | "connecting" | "resuming" | "live" | "catching_up" | "moving" | "waiting" | "paused" | "refused" | "closed";
/** A change of the status. */
export interface StatusChange {
  status: Status;
  previous: Status;
  reason: string;
}
/** The coarser words of `gate.state`. */
export type ConnectionState = "connecting" | "up" | "waiting" | "refused" | "paused" | "closed";
/** Where the client stands against the log. */
export type Standing = "none" | "live" | "resuming" | "catching_up" | "announced";
/** A subscription in one word. */
export type SubscriptionState = "wanted" | "requested" | "active" | "changed" | "releasing" | "suspended" | "waiting" | "retrying" | "refused" | "idle";

/** A snapshot of the client. */
export interface State {
  status: Status;
  connection: ConnectionState;
  position: Standing;
  /** The gateway's link to Redis. */
  bus: "up" | "down";
  session: string | null;
  user: string | null;
  epoch: string | null;
  offset: number | null;
  subscriptions: Record<string, SubscriptionState>;
  limits: Limits;
  received: number;
  waiting: number;
  gaps: number;
  missed: number;
}

// Errors.

/** The codes of the product. */
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
  readonly parts: (Code extends keyof ErrorParts ? ErrorParts[Code] : {}) & Record<string, any>;
}

/** The one error of the client: its code says which parts it has. */
export type HeadgateError = { [Code in ErrorCode]: CodedError<Code> }[ErrorCode];
/** The class of all of them. */
export const HeadgateError: {
  new (code: ErrorCode, parts?: Record<string, any>, retry?: boolean, message?: string, cause?: unknown): HeadgateError;
  readonly prototype: HeadgateError;
};

// Options.

/** Policy of a subscription when the client's queue is full. */
export type Overflow = "catch_up" | "latest" | "drop";
/** Where in the log a subscription starts. */
export type Since = { offset: number; epoch?: string | undefined } | { time: number } | { last: number };
/** A token, or a function that brings one. */
export type TokenSource = string | null | undefined | (() => string | null | undefined | Promise<string | null | undefined>);

/** Options of `connect`. */
export interface ConnectOptions {
  /** Default `notifications`. */
  namespace?: string | undefined;
  /** `false`: `gate.open()` connects. */
  autoConnect?: boolean | undefined;
  /** A function is asked at each connect and before expiry. */
  token?: TokenSource;
  /** Default 500. */
  reconnectDelayMinMs?: number | undefined;
  /** Default 20000. */
  reconnectDelayMaxMs?: number | undefined;
  /** Default 10000. */
  requestTimeoutMs?: number | undefined;
  /** Default 20000, until the welcome. */
  connectTimeoutMs?: number | undefined;
  /** Messages that may wait for a busy page, default 10000. */
  inboxLimit?: number | undefined;
  /** More for the auth object of CONNECT. */
  auth?: Record<string, any> | undefined;
  /** Where an earlier page of this user stopped; null: nowhere. */
  resume?: Position | Pick<State, "epoch" | "offset"> | null | undefined;
  /** Called when events will not come. */
  resync?: ((gap: ToldGap) => void) | undefined;
  /** `websocket`: nothing else. `stream`, `socket.io`: from the start. */
  transport?: "websocket" | "stream" | "socket.io" | undefined;
  /** A `socket.io-client` of your own. */
  io?: any;
  /** Default `/socket.io`. */
  path?: string | undefined;
  /** Of `socket.io-client`. */
  transports?: ("websocket" | "polling")[] | undefined;
  /** More for `socket.io-client`. */
  socketOptions?: Record<string, any> | undefined;
  /** A class in the place of the browser's. */
  WebSocket?: any;
}

/** Options of a subscription. */
export interface SubscribeOptions {
  /** Default `catch_up`. */
  overflow?: Overflow | undefined;
  /** `false`: leave gaps to the application. */
  repair?: boolean | undefined;
  /** The part of the past to begin with. */
  since?: Since | undefined;
  /** Ends the subscription. */
  signal?: AbortSignal | undefined;
}

/** Options of `events`. */
export interface EventsOptions extends SubscribeOptions {
  /** Events that may wait for the loop, default 256. */
  limit?: number | undefined;
}

/** `behind`: events may be missing. `current`: none are missing. */
export type LoadStatus = "loading" | "behind" | "current" | "failed" | "closed";

/** Options of `load`. */
export interface LoadOptions<Data = any, Answer = any> {
  /** Replaces the state. */
  reset: (answer: Answer) => void;
  /** Changes the state; an event may come again after an answer. */
  apply: (data: Data, event: HeadgateEvent<Data>) => void;
  /** Called when `status` or `error` is another. */
  changed?: ((load: Load) => void) | undefined;
  /** Where in the log the state that came with the page was read: nothing is fetched at first. */
  since?: Position | undefined;
  /** Closes it. */
  signal?: AbortSignal | undefined;
  /** For a fetch, default 30000. */
  timeoutMs?: number | undefined;
  /** Default 1000: a fetch after a loss waits up to this. */
  resyncSpreadMs?: number | undefined;
}

/** A state that is fetched, and followed by events; `using` ends it with the block. */
export interface Load extends Disposable {
  readonly pattern: string;
  /** Where it is, in one word. */
  readonly status: LoadStatus;
  /** Why it has failed, else `null`. */
  readonly error: any;
  /** Fetch again now. */
  reload(): void;
  /** End it. */
  close(): void;
}

/** Offsets, inclusive. */
export interface Range {
  from: number;
  to: number;
  /** The epoch in which they are meant. */
  epoch?: string | undefined;
}

/** The receipt of a publish. */
export interface Receipt {
  epoch: string;
  offset: number;
  duplicate?: boolean;
}

// TypeScript 5.2 knows these with `esnext.disposable` only.
declare global {
  interface SymbolConstructor {
    readonly dispose: unique symbol;
  }
  interface Disposable {
    [Symbol.dispose](): void;
  }
}

/** One handler's subscription; `using` ends it with the block. */
export interface Subscription extends Disposable {
  readonly pattern: string;
  /** Where it is, in one word. */
  readonly status: SubscriptionState;
  /** Settled by the gateway's answer. */
  readonly ready: Promise<void>;
  /** End this subscription and no other. */
  close(): void;
}

// The interface.

/** Any Backbone.Events object or dispatcher. */
export interface Listenable {
  on: Function;
  off: Function;
}

/** Names to handlers, as Backbone.Events. */
export class Dispatcher<Topics = AnyTopics> {
  /** Bind a handler, as Backbone does. */
  on<Name extends LifecycleName>(name: Name, callback: (this: any, ...args: NamedEvents[Name]) => any, context?: any): this;
  on<Name extends keyof Topics & string>(name: Name, callback: HandlerOf<Topics, Name>, context?: any, options?: SubscribeOptions): this;
  on<const Name extends string>(name: Name & Declared<Name> & Subscribable<Topics, Name>, callback: CallbackFor<Topics, Name>, context?: any, options?: SubscribeOptions): this;
  on<Map extends EventMap<Topics>>(names: EventMap<Topics> & Map & DeclaredMap<Map>, context?: any): this;
  /** Remove handlers of the application that match. Loads, rooms and stores end by themselves. */
  off<Name extends string>(name?: (Name & Declared<Name>) | null, callback?: Callback | null, context?: any): this;
  off<Map extends { [name: string]: Callback }>(names: Map & DeclaredMap<Map>, context?: any): this;
  /** Bind a handler for one call. */
  once<Name extends LifecycleName>(name: Name, callback: (this: any, ...args: NamedEvents[Name]) => any, context?: any): this;
  once<Name extends keyof Topics & string>(name: Name, callback: HandlerOf<Topics, Name>, context?: any, options?: SubscribeOptions): this;
  once<const Name extends string>(name: Name & Declared<Name> & Subscribable<Topics, Name>, callback: CallbackFor<Topics, Name>, context?: any, options?: SubscribeOptions): this;
  once<Map extends EventMap<Topics>>(names: EventMap<Topics> & Map & DeclaredMap<Map>, context?: any): this;
  /** Backbone's old name of `on`. */
  bind: this["on"];
  /** Backbone's old name of `off`. */
  unbind: this["off"];
  /** Listen to another object. */
  listenTo<Name extends LifecycleName>(other: Dispatcher<any>, name: Name, callback: (this: any, ...args: NamedEvents[Name]) => any): this;
  listenTo<const Name extends string>(other: Dispatcher<any>, name: Name & Declared<Name>, callback: Callback): this;
  listenTo<Map extends EventMap<any>>(other: Dispatcher<any>, names: EventMap<any> & Map & DeclaredMap<Map>): this;
  listenTo(other: Listenable & { dispatch?: never }, name: string | { [name: string]: Callback }, callback?: Callback): this;
  /** Listen to another object for one call. */
  listenToOnce<Name extends LifecycleName>(other: Dispatcher<any>, name: Name, callback: (this: any, ...args: NamedEvents[Name]) => any): this;
  listenToOnce<const Name extends string>(other: Dispatcher<any>, name: Name & Declared<Name>, callback: Callback): this;
  listenToOnce<Map extends EventMap<any>>(other: Dispatcher<any>, names: EventMap<any> & Map & DeclaredMap<Map>): this;
  listenToOnce(other: Listenable & { dispatch?: never }, name: string | { [name: string]: Callback }, callback?: Callback): this;
  /** Stop listening to one object, or to all. */
  stopListening(other?: Listenable | null, name?: string | { [name: string]: Callback } | null, callback?: Callback): this;
  /** Call the handlers of exactly this name. */
  trigger(name: string | Record<string, any>, ...args: any[]): this;
  /** Call the handlers of every pattern that matches. */
  dispatch(topic: string, data: any, describe: (pattern: string) => any, admits?: (pattern: string) => boolean, alias?: string): number;
}

/** A dispatcher with topics subscribed at the gateway. */
export class Gate<Topics = AnyTopics> extends Dispatcher<Topics> {
  constructor(address: string, options: ConnectOptions);
  /** Origin and namespace. */
  readonly address: string;
  /** The connection in one word. */
  readonly status: Status;
  /** Whether the gateway takes requests now. */
  readonly isUp: boolean;
  /** A snapshot of everything. */
  readonly state: State;
  /** Connect, also after a refusal. */
  open(): this;
  /** Subscribe a handler to a topic or pattern. */
  subscribe<Name extends keyof Topics & string>(pattern: Name, handler: HandlerOf<Topics, Name>): Subscription;
  subscribe<Name extends keyof Topics & string>(pattern: Name, options: SubscribeOptions, handler: HandlerOf<Topics, Name>): Subscription;
  subscribe<Name extends string>(pattern: Name & Subscribable<Topics, Name>, handler: HandlerOf<Topics, Name>): Subscription;
  subscribe<Name extends string>(pattern: Name & Subscribable<Topics, Name>, options: SubscribeOptions, handler: HandlerOf<Topics, Name>): Subscription;
  /** Wait until a pattern is active. */
  subscribed(pattern: string): Promise<void>;
  /** Publish an event, if the token grants it. */
  publish<Topic extends string>(topic: Topic & Publishable<Topics, Topic>, data: PayloadOf<Topics, Topic>, options: { id?: string | undefined; echo?: boolean | undefined; ephemeral: true }): Promise<{ id: string }>;
  publish<Topic extends string>(topic: Topic & Publishable<Topics, Topic>, data: PayloadOf<Topics, Topic>, options?: { id?: string | undefined; echo?: boolean | undefined }): Promise<Receipt>;
  /** Say which events the user was shown. */
  seen(ids: string[]): Promise<{ seen: number }>;
  /** Give a part of the log to the handlers of one pattern again. */
  replay(pattern: string, range: Range): Promise<number>;
  /** Use another token. */
  refresh(token?: string): Promise<void>;
  /** Disconnect for good. */
  close(): void;
}

/** Connect to a gateway; `Topics` maps patterns to payloads. */
export function connect<Topics = AnyTopics>(url?: string | undefined, options?: ConnectOptions): Gate<Topics>;
/** Events of a pattern, for `for await`. */
export function events<Topics, Name extends string>(
  gate: Gate<Topics>,
  pattern: Name & Subscribable<Topics, Name>,
  options?: EventsOptions,
): AsyncIterableIterator<EventOf<Topics, Name>>;
/** Fetch a state when the pattern is active, and change it by each event from then on. */
export function load<Topics, Name extends string, Answer = any>(
  gate: Gate<Topics>,
  pattern: Name & Subscribable<Topics, Name>,
  fetch: (how: { signal: AbortSignal }) => Answer | Promise<Answer>,
  options: LoadOptions<PayloadOf<Topics, Name>, Answer>,
): Load;
/** Return the topic if it is one. */
export function checkTopic(topic: unknown): string;
/** Return data as plain JSON. Throws `not_serializable`, `payload_too_large`. */
export function checkPayload(data: unknown, limit?: number): any;
/** Return the pattern if it is one. */
export function checkPattern(pattern: unknown): string;
/** Return the word that stands for a user in topics. */
export function userWord(name: string): string;
/** Whether a topic matches a pattern. */
export function matches(pattern: string, topic: string): boolean;
