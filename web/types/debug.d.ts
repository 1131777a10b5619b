/** The types of `headgate/debug`. */
import type { Gate } from "./index.js";

/** Log each transition where `localStorage.headgate` is "debug". Returns what ends it. */
export function debug(gate: Gate<any>): () => void;
