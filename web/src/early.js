/**
 * The index of the last event that may wait for a loop (`gate.events`) whose code is not there yet. Who finds that place taken knows
 * that more may have come.
 */
export const LAST_EARLY = 9_999;
