/** The types of `headgate/backbone`. */
import * as Backbone from "backbone";
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

/** One notification of a list. */
export interface Notification<Data = any> {
  id?: string;
  topic: string;
  data: Data;
  time: number;
  pattern: string;
  read: boolean;
}

/** A bounded list of notifications, newest first. */
export class NotificationList<Data = any> extends Backbone.Collection<Backbone.Model<Notification<Data>>> {
  static extend<Parent, Properties, Statics>(this: Parent, properties?: Properties & ThisType<any>, statics?: Statics): Extended<Parent, Properties, Statics>;
  constructor(
    models: Notification<Data>[] | undefined,
    options: {
      gate: Gate<any>;
      patterns?: string[] | undefined;
      limit?: number | undefined;
      /** Leaves out the events for which it returns false, such as those that the user has caused. */
      accepts?: ((data: any, event: HeadgateEvent<any>) => boolean) | undefined;
      /** Whether the user has read an event of the past: it is listed as read, and not told as shown. */
      wasRead?: ((event: HeadgateEvent<any>) => boolean) | undefined;
      [option: string]: any;
    },
  );
  /** How many are not read. */
  readonly unread: number;
  /** The patterns that the user has chosen. */
  readonly chosen: string[];
  /** Be notified of a pattern. */
  choose(pattern: string): this;
  /** Be notified of it no more. */
  dismiss(pattern: string): this;
  /** Say which were put before the user. */
  shown(...notifications: any[]): void;
  /** Mark one as read. */
  read(id: any): void;
  /** Mark all as read. */
  readAll(): void;
}
