/** The types of `headgate/inbox`. */
import type { Gate, HeadgateError, Receipt } from "./index.js";
import type { Store } from "./store.js";

/** An item of an inbox. */
export interface InboxItem<Data = any> {
  /** `<kind>/<id of its event>`. */
  readonly id: string;
  /** The words of its topic after the user's inbox, such as `orders.failed`. */
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

/** `loading`: there is no answer yet. `behind`: items may be missing. `current`: none is missing. `failed`: the inbox cannot be read. */
export type InboxStatus = "loading" | "behind" | "current" | "failed";

/** An inbox as it stands. */
export interface InboxSnapshot<Data = any> {
  /** The loaded items without archived ones, newest first. */
  readonly items: readonly InboxItem<Data>[];
  /** The number of unread items in the whole inbox, loaded or not. */
  readonly unread: number;
  /** Muted channels by pattern of kinds. */
  readonly mutes: { readonly [pattern: string]: readonly InboxChannel[] };
  /** Whether `loadMore` brings older items. */
  readonly hasMore: boolean;
  readonly status: InboxStatus;
  /** Why the inbox cannot be read. */
  readonly error: HeadgateError | null;
}

/** Options of an inbox. */
export interface InboxOptions {
  /** Items of one request, 1 to 100, default 20. */
  pageSize?: number | undefined;
  /** An outbox of `headgate/offline`, which keeps actions while there is no connection. Without one they are rejected with `disconnected`. */
  outbox?: { publish: (topic: string, data: any, options: { id: string }) => Promise<Receipt> } | undefined;
}

/**
 * The inbox of a gate's user. It follows the server while it has listeners. An action shows at once. Its promise is resolved when the log has it. If it is rejected, with a
 * `HeadgateError`, the change is undone.
 */
export interface Inbox<Data = any> extends Store<InboxSnapshot<Data>> {
  readonly items: readonly InboxItem<Data>[];
  readonly unread: number;
  /** Load older items. Does nothing without listeners. */
  loadMore: () => Promise<void>;
  markRead: (ids: string | readonly string[]) => Promise<void>;
  /** Mark items as unread. An archived item comes back. */
  markUnread: (ids: string | readonly string[]) => Promise<void>;
  /** Mark items as read and remove them from the list. */
  archive: (ids: string | readonly string[]) => Promise<void>;
  /** Mark as read all items up to the newest one that is shown. */
  markAllRead: () => Promise<void>;
  /** Call a listener once with each item that arrives and is not muted in pages, while the inbox has listeners. Returns the function that ends this. */
  onAlert: (listener: (item: InboxItem<Data>) => void) => () => void;
  /** Mute a pattern of kinds on exactly these channels (default: all of them), on every device of the user. */
  mute: (pattern: string, channels?: readonly InboxChannel[]) => Promise<void>;
  unmute: (pattern: string) => Promise<void>;
  /** Whether a kind is muted on a channel, default `page`. */
  isMuted: (kind: string, channel?: InboxChannel) => boolean;
}

/** Make the inbox of a gate's user. */
export function createInbox<Data = any>(gate: Gate<any>, options?: InboxOptions): Inbox<Data>;
/** Show the unread count before a page's title, default that of the document. Returns the function that ends this. */
export function badgeTitle(inbox: Pick<Inbox, "subscribe" | "unread">, page?: { title: string }): () => void;
