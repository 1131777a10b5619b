/**
 * The entry point `headgate/request`: calls a function of the application (`@gate.on_request` in Python).
 *
 * In: a name, JSON data. Out: the answer as a promise. A request is never sent twice, so without an answer its outcome is unknown.
 */
import { newId } from "./base/new-id.js";
import { checkPayload, checkTopic, Gate } from "./index.js";
import { MAX_DELAY_MS } from "./base/timer.js";
import { SIGNAL } from "./language/options.js";
import { CANCEL, REQUEST } from "./language/protocol.js";

/** @type {import("./language/options.js").Table} */
const OPTIONS = { timeoutMs: [[1, MAX_DELAY_MS, true], 10_000], signal: [SIGNAL] };

/**
 * Send a request and return its answer.
 * @param {Gate} gate
 * @param {string} name of the request, with the grammar of a topic; the token needs a publish grant for it
 * @param {unknown} data JSON
 * @param {{ timeoutMs?: number, signal?: AbortSignal }} [options] `timeoutMs`: time for the function, at most the gateway's `requestTimeoutS`; `signal` cancels it
 * @returns {Promise<any>} rejected with the reason of `signal`, or with HeadgateError: the refusal of the gateway or the function, `timed_out`, `disconnected` (it was not
 *   sent), or `outcome_unknown` {id, name, reason} (it was sent, and its answer is lost)
 */
export async function request(gate, name, data, options = {}) {
  const { timeoutMs, signal } = Gate._optionsOf(gate, "request", OPTIONS, options);
  const id = newId();
  const body = { name: checkTopic(name), data: checkPayload(data, gate.state.limits.maxPayloadBytes), id, timeout_ms: timeoutMs };
  signal?.throwIfAborted();
  /** @type {((reason: any) => void) | undefined} */
  let fail;
  const aborted = new Promise((_, reject) => {
    fail = reject;
  });
  const abort = () => {
    fail?.(signal.reason);
    gate._request(CANCEL, { id }).catch(() => {});
  };
  signal?.addEventListener("abort", abort);
  try {
    return (await Promise.race([gate._request(REQUEST, body, signal), aborted])).data;
  } finally {
    signal?.removeEventListener("abort", abort);
  }
}
