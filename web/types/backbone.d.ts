/** The types of `headgate/backbone`. */
import * as Backbone from "backbone";
import type { Inbox, InboxItem, InboxStatus } from "./inbox.js";
import type { Gate, HeadgateEvent } from "./index.js";

/** A change that an event brings. */
export interface Change {
  /** `upsert`: add or update. `merge`: update an existing model. */
  op: "upsert" | "merge" | "remove" | "ignore";
  id?: any;
  attributes?: Record<string, any> | undefined;
}
/** Reads the change from an event, instead of the convention `<topic>.<id>.<verb>`. `null`: the event changes nothing. */
export type Mapping = (event: HeadgateEvent<any>) => Change | null | undefined;

/** Options of live models and collections. */
export interface LiveOptions {
  /** The gate to follow at once. */
  gate?: Gate<any> | undefined;
  /** Prefix of the topics, such as `orders`. Default: the property `topic`. */
  topic?: string | undefined;
  mapping?: Mapping | undefined;
  /** The attribute with the version, default `version`. Attributes whose version is not newer change nothing. */
  versionAttribute?: string | undefined;
  /** A fetch after a loss waits a random time up to this, default 1000. */
  resyncSpreadMs?: number | undefined;
  /** Default `true`. `false`: the application fetches, when the subscription is acknowledged and after a loss. */
  refetch?: boolean | undefined;
}

/** What `extend` returns: the class with more. */
type Extended<Parent, Properties, Statics> = Parent & Statics & { new (...args: any[]): Properties; __super__: any };

/** A Backbone model that follows the events of `<topic>.<id>.*`. */
export class LiveModel<T extends object = any> extends Backbone.Model<T> {
  static extend<Parent, Properties, Statics>(this: Parent, properties?: Properties & ThisType<any>, statics?: Statics): Extended<Parent, Properties, Statics>;
  constructor(attributes?: T, options?: LiveOptions & { [option: string]: any });
  /** Follow the events of a topic as soon as the model has an id. Throws `invalid_pattern` if the id is not one word of a topic. */
  follow(gate: Gate<any>, options?: LiveOptions): this;
  /** Stop following. */
  unfollow(): void;
  /** Set the attributes of an event. Returns `false` if they are stale. */
  setLive(attributes: Partial<T>, event: HeadgateEvent<any>): boolean;
  /** Trigger `destroy`, because the server no longer has the model. Returns `false` if the event is stale. */
  removeLive(attributes: Partial<T> | undefined, event: HeadgateEvent<any>): boolean;
}

/** A Backbone collection that follows the events of `<topic>.*.*`, or of the option `pattern`. */
export class LiveCollection<T extends object = any, Model extends Backbone.Model<any> = LiveModel<T>> extends Backbone.Collection<Model> {
  static extend<Parent, Properties, Statics>(this: Parent, properties?: Properties & ThisType<any>, statics?: Statics): Extended<Parent, Properties, Statics>;
  /** The attribute with the version, default `version`. */
  versionAttribute: string;
  constructor(models?: Model[] | Partial<T>[], options?: LiveOptions & { pattern?: string | undefined; [option: string]: any });
  /** Follow the events of a topic. */
  follow(gate: Gate<any>, options?: LiveOptions & { pattern?: string | undefined }): this;
  /** Stop following. */
  unfollow(): void;
  /** Apply the change that an event brought. */
  applyLive(change: Change, event: HeadgateEvent<any>): void;
}

/** An inbox as a collection, newest first. Its models are the inbox's items. `alert` {item} is triggered for each item that arrives and is not muted in pages. */
export class NotificationList<Data = any> extends Backbone.Collection<Backbone.Model<InboxItem<Data>>> {
  static extend<Parent, Properties, Statics>(this: Parent, properties?: Properties & ThisType<any>, statics?: Statics): Extended<Parent, Properties, Statics>;
  constructor(models: undefined | null | [], options: { inbox: Inbox<Data>; [option: string]: any });
  /** The inbox, which has the actions, such as `markRead`. */
  readonly inbox: Inbox<Data>;
  /** The number of unread items in the whole inbox. The list triggers `unread` {count} when it changes. */
  readonly unread: number;
  /** The list triggers `status` {status} when it changes. */
  readonly status: InboxStatus;
  /** Stop following the inbox. The listed items stay. */
  unfollow(): void;
}
