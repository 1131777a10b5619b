/** The types of `headgate/inbox`. */
import type { Gate, HeadgateError, Receipt } from "./index.js";
import type { Store } from "./store.js";

/** An item of an inbox. */
export interface InboxItem<Data = any> {
  /** `<kind>/<id of its event>`. */
  readonly id: string;
  /** What its topic has below the user's inbox, such as `orders.failed`. */
  readonly kind: string;
  readonly data: Data;
  /** Milliseconds since 1970. */
  readonly time: number;
  /** The offset of its event. */
  readonly at: number;
  readonly read: boolean;
}

/** Where a user is alerted. */
export type InboxChannel = "mail" | "page" | "push";

/** `behind`: events may be missing. `current`: none are missing. */
export type InboxStatus = "loading" | "behind" | "current" | "failed";

/** An inbox as it stands. */
export interface InboxSnapshot<Data = any> {
  /** Newest first, as far as they were loaded. */
  readonly items: readonly InboxItem<Data>[];
  /** Of the whole inbox. */
  readonly unread: number;
  /** Muted channels by pattern of kinds. */
  readonly mutes: { readonly [pattern: string]: readonly InboxChannel[] };
  readonly hasMore: boolean;
  readonly status: InboxStatus;
  /** Why it could not be loaded. */
  readonly error: HeadgateError | null;
}

/** Options of an inbox. */
export interface InboxOptions {
  /** Items that one request brings, 1 to 100, default 20. */
  pageSize?: number | undefined;
  /** An outbox of `headgate/offline`: it keeps actions while there is no connection. */
  outbox?: { publish: (topic: string, data: any, options: { id: string }) => Promise<Receipt> } | undefined;
}

/** The inbox of a gate's user. An action shows at once, and is taken back when it is refused. */
export interface Inbox<Data = any> extends Store<InboxSnapshot<Data>> {
  readonly items: readonly InboxItem<Data>[];
  readonly unread: number;
  /** Bring older items. */
  loadMore: () => Promise<void>;
  markRead: (ids: string | readonly string[]) => Promise<void>;
  markUnread: (ids: string | readonly string[]) => Promise<void>;
  /** Read, and no longer listed. */
  archive: (ids: string | readonly string[]) => Promise<void>;
  /** Mark as read all items up to the newest one that is shown. */
  markAllRead: () => Promise<void>;
  /** Call a listener with each item that arrives and is not muted; returns its end. */
  onAlert: (listener: (item: InboxItem<Data>) => void) => () => void;
  /** Mute a pattern of kinds on exactly these channels, by default all, on every device. */
  mute: (pattern: string, channels?: readonly InboxChannel[]) => Promise<void>;
  unmute: (pattern: string) => Promise<void>;
  /** Whether a kind is muted, in pages by default. */
  isMuted: (kind: string, channel?: InboxChannel) => boolean;
}

/** Make the inbox of a gate's user. */
export function createInbox<Data = any>(gate: Gate<any>, options?: InboxOptions): Inbox<Data>;
/** Show the unread count in front of a page's title; returns the function that ends it. */
export function badgeTitle(inbox: Pick<Inbox, "subscribe" | "unread">, page?: { title: string }): () => void;
