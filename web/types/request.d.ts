/** The types of `headgate/request`. */
import type { Gate } from "./index.js";

/** Names with their `data` and `answer`: `declare module "headgate/request"` adds yours. */
export interface Requests {}
/** A name of the map; any name without a map. */
export type RequestName = [keyof Requests] extends [never] ? string : keyof Requests & string;
/** The data of a request. */
export type RequestData<Name> = Name extends keyof Requests ? (Requests[Name] extends { data: infer Data } ? Data : unknown) : unknown;
/** The answer to a request. */
export type RequestAnswer<Name> = Name extends keyof Requests ? (Requests[Name] extends { answer: infer Answer } ? Answer : unknown) : unknown;

/** Options of a request. */
export interface RequestOptions {
  /** The time of the function, default 10000; at most the gateway's `requestTimeoutS`. */
  timeoutMs?: number | undefined;
  /** Cancels it. */
  signal?: AbortSignal | undefined;
}

/** Ask a function of your application. Its refusal may have a code of your own. */
export function request<Name extends RequestName>(gate: Gate<any>, name: Name, data: RequestData<Name>, options?: RequestOptions): Promise<RequestAnswer<Name>>;
