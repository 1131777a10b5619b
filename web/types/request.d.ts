/** The types of `headgate/request`. */
import type { Gate } from "./index.js";

/** Names with the types of their `data` and `answer`. Add yours by `declare module "headgate/request"`. */
export interface Requests {}
/** A name of the map, or any name if the map is empty. */
export type RequestName = [keyof Requests] extends [never] ? string : keyof Requests & string;
/** The data of a request. */
export type RequestData<Name> = Name extends keyof Requests ? (Requests[Name] extends { data: infer Data } ? Data : unknown) : unknown;
/** The answer to a request. */
export type RequestAnswer<Name> = Name extends keyof Requests ? (Requests[Name] extends { answer: infer Answer } ? Answer : unknown) : unknown;

/** Options of a request. */
export interface RequestOptions {
  /** Time for the function, default 10000, at most the gateway's `requestTimeoutS`. */
  timeoutMs?: number | undefined;
  /** Cancels the request. */
  signal?: AbortSignal | undefined;
}

/**
 * Call a function of your application (`@gate.on_request` in Python) and return its answer. The token needs a publish grant for the name.
 *
 * Rejected with the reason of `signal`, or with a `HeadgateError`: the refusal of the gateway or the function, which may have a code of your own; `timed_out`; `disconnected`,
 * if it was not sent; `outcome_unknown`, if it was sent and its answer is lost. It is never sent twice.
 */
export function request<Name extends RequestName>(gate: Gate<any>, name: Name, data: RequestData<Name>, options?: RequestOptions): Promise<RequestAnswer<Name>>;
