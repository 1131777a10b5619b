/** The types of `headgate/debug`. */
import type { Gate } from "./index.js";

/** Log each transition of a gate where `localStorage.headgate` is "debug". Returns what ends it. */
export function debug(gate: Gate<any>): () => void;
