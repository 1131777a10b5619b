/** The types of `headgate/history`. */
import type { Gate, HeadgateEvent, Position, State } from "./index.js";

/** A part of the past. */
export interface HistoryPart<Data = any> {
  /** Newest first: `limit` of them, or fewer where the log has no more. */
  events: HeadgateEvent<Data>[];
  /** Where the next part ends. `null`: the log has no older events. */
  before: Position | null;
}

/** The newest events of a pattern, or those below `before` of an earlier part. */
export function history<Data = any>(gate: Gate<any>, pattern: string, options?: { before?: Position | Pick<State, "epoch" | "offset"> | null | undefined; limit?: number | undefined }): Promise<HistoryPart<Data>>;
