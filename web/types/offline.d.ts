/** The types of `headgate/offline`. */
import type { Gate, PublishNotice, Receipt } from "./index.js";
import type { AnyTopics, PayloadOf, Publishable } from "./topics.js";

/** Options of an outbox. */
export interface OutboxOptions {
  /** `memory` (default) ends with the page; `indexeddb` outlives it, if the page may store. */
  storage?: "memory" | "indexeddb" | undefined;
  /** The user of these publishes. Only pages of that user send them. Needed for `indexeddb`. */
  user?: string | undefined;
  /** Publishes that may wait, default 1000. */
  maxEvents?: number | undefined;
  /** JSON of all of them, default 1048576. */
  maxBytes?: number | undefined;
  /** Time after which an unsent publish is reported as `expired`; default: a day. */
  maxAgeMs?: number | undefined;
}

/** Publishes that wait for a connection. */
export interface Outbox<Topics = AnyTopics> {
  /** Publish an event now, or when there is a connection. Resolved when it is in the log. */
  publish<Topic extends string>(
    topic: Topic & Publishable<Topics, Topic>,
    data: PayloadOf<Topics, Topic>,
    options?: { id?: string | undefined; maxAgeMs?: number | undefined },
  ): Promise<Receipt>;
  /** What is kept and has no answer yet, oldest first. */
  pending(): Promise<PublishNotice[]>;
  /** Discard kept publishes in all tabs, all of them or these ids. Their publishers are notified. */
  discard(ids?: string[]): Promise<void>;
  /** Send nothing more. What is kept in IndexedDB is sent by the next page. */
  close(): void;
}

/** Make the outbox of a gate. It ends with the gate. */
export function createOutbox<Topics = AnyTopics>(gate: Gate<Topics>, options?: OutboxOptions): Outbox<Topics>;
