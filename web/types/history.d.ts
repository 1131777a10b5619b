/** The types of `headgate/history`. */
import type { Gate, HeadgateEvent, Position, State } from "./index.js";

/** A part of the past. */
export interface HistoryPart<Data = any> {
  /** Newest first. Fewer than `limit` if the log has no more. */
  events: HeadgateEvent<Data>[];
  /** Pass it as `before` to get the next, older part. `null`: the log has no older events. */
  before: Position | null;
}

/**
 * Return the newest events of a pattern, or the newest below `before` of an earlier part. No handler is called. `limit` is 1 to 1000, default 50. A pattern that few events
 * match takes longer. Rejected with a `HeadgateError`, such as `invalid_request` if the log is another one since `before`.
 */
export function history<Data = any>(gate: Gate<any>, pattern: string, options?: { before?: Position | Pick<State, "epoch" | "offset"> | null | undefined; limit?: number | undefined }): Promise<HistoryPart<Data>>;
