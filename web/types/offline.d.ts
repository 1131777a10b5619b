/** The types of `headgate/offline`. */
import type { Gate, PublishNotice, Receipt } from "./index.js";
import type { AnyTopics, PayloadOf, Publishable } from "./topics.js";

/** Options of an outbox. */
export interface OutboxOptions {
  /** `memory` (default): kept until the page ends. `indexeddb`: kept across pages, and shared by all tabs of the user; in memory where the page may not store anything. */
  storage?: "memory" | "indexeddb" | undefined;
  /** The owner of the publishes. Nothing is sent while the gate is connected as another user. Required for `indexeddb`. */
  user?: string | undefined;
  /** Publishes that may wait, over all tabs, default 1000. */
  maxEvents?: number | undefined;
  /** Bytes of their JSON, over all tabs, default 1048576. */
  maxBytes?: number | undefined;
  /** Time after which an unsent publish is rejected with `expired`, default a day. */
  maxAgeMs?: number | undefined;
}

/** Publishes that wait for a connection. They are sent in order, one at a time. */
export interface Outbox<Topics = AnyTopics> {
  /**
   * Publish an event now, or when there is a connection. Resolved when it is in the log. Rejected with a `HeadgateError`: at once for an invalid topic or payload, for a full
   * outbox (`limit_reached`), or if IndexedDB fails (`storage_failed`); later with the gateway's refusal, `expired`, `discarded`, `outcome_unknown` or `closed`.
   */
  publish<Topic extends string>(
    topic: Topic & Publishable<Topics, Topic>,
    data: PayloadOf<Topics, Topic>,
    options?: { id?: string | undefined; maxAgeMs?: number | undefined },
  ): Promise<Receipt>;
  /** The publishes without an answer, oldest first. */
  pending(): Promise<PublishNotice[]>;
  /** Discard all publishes, or those with these ids, in all tabs. Their promises are rejected with `discarded`, or with `outcome_unknown` if they were sent. Resolved when nothing of them is stored. */
  discard(ids?: string[]): Promise<void>;
  /** Stop sending. Publishes in IndexedDB are sent by the next page. */
  close(): void;
}

/** Make an outbox for a gate. It closes with the gate. */
export function createOutbox<Topics = AnyTopics>(gate: Gate<Topics>, options?: OutboxOptions): Outbox<Topics>;
