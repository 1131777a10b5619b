import { hooksFor } from "headgate/svelte";
import type { Topics } from "./topics";

export const { useEvents, useGate, useGateStatus, useLiveCollection, useSubscription } = hooksFor<Topics>();
