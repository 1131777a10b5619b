/** The types of `headgate/backbone`. */
import * as Backbone from "backbone";
import type { Inbox, InboxItem, InboxStatus } from "./inbox.js";
import type { Gate, HeadgateEvent } from "./index.js";

/** A change that an event brings. */
export interface Change {
  /** `upsert`: add or update. `merge`: update a model that is known. */
  op: "upsert" | "merge" | "remove" | "ignore";
  id?: any;
  attributes?: Record<string, any> | undefined;
}
/** Reads an event instead of the convention. */
export type Mapping = (event: HeadgateEvent<any>) => Change | null | undefined;

/** Options of live models and collections. */
export interface LiveOptions {
  gate?: Gate<any> | undefined;
  /** Prefix of the topics, such as `orders`. */
  topic?: string | undefined;
  mapping?: Mapping | undefined;
  /** Default `version`. */
  versionAttribute?: string | undefined;
  /** Default 1000: a fetch after a gap waits up to this. */
  resyncSpreadMs?: number | undefined;
  /** `false`: never fetch by itself. */
  refetch?: boolean | undefined;
}

/** What `extend` returns: the class with more. */
type Extended<Parent, Properties, Statics> = Parent & Statics & { new (...args: any[]): Properties; __super__: any };

/** A Backbone model that follows its events. */
export class LiveModel<T extends object = any> extends Backbone.Model<T> {
  static extend<Parent, Properties, Statics>(this: Parent, properties?: Properties & ThisType<any>, statics?: Statics): Extended<Parent, Properties, Statics>;
  constructor(attributes?: T, options?: LiveOptions & { [option: string]: any });
  /** Follow the events of a topic. */
  follow(gate: Gate<any>, options?: LiveOptions): this;
  /** Stop following. */
  unfollow(): void;
  /** Take attributes of an event; `false`: they were stale. */
  setLive(attributes: Partial<T>, event: HeadgateEvent<any>): boolean;
  /** The server no longer has it; `false`: that was stale. */
  removeLive(attributes: Partial<T> | undefined, event: HeadgateEvent<any>): boolean;
}

/** A Backbone collection that follows the events of its models. */
export class LiveCollection<T extends object = any, Model extends Backbone.Model<any> = LiveModel<T>> extends Backbone.Collection<Model> {
  static extend<Parent, Properties, Statics>(this: Parent, properties?: Properties & ThisType<any>, statics?: Statics): Extended<Parent, Properties, Statics>;
  /** Which attribute is the version; default `version`. */
  versionAttribute: string;
  constructor(models?: Model[] | Partial<T>[], options?: LiveOptions & { pattern?: string | undefined; [option: string]: any });
  /** Follow the events of a topic. */
  follow(gate: Gate<any>, options?: LiveOptions & { pattern?: string | undefined }): this;
  /** Stop following. */
  unfollow(): void;
  /** Take a change that an event brought. */
  applyLive(change: Change, event: HeadgateEvent<any>): void;
}

/** An inbox as a collection, newest first. Its models are the inbox's items. */
export class NotificationList<Data = any> extends Backbone.Collection<Backbone.Model<InboxItem<Data>>> {
  static extend<Parent, Properties, Statics>(this: Parent, properties?: Properties & ThisType<any>, statics?: Statics): Extended<Parent, Properties, Statics>;
  constructor(models: undefined | null | [], options: { inbox: Inbox<Data>; [option: string]: any });
  /** Whose actions are those of the list. */
  readonly inbox: Inbox<Data>;
  /** How many of the whole inbox are unread. `unread` {count} says when it changes. */
  readonly unread: number;
  /** `status` {status} says when it changes. */
  readonly status: InboxStatus;
  /** Follow the inbox no more. */
  unfollow(): void;
}
