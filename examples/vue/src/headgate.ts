import { hooksFor } from "headgate/vue";
import type { Topics } from "./topics";

export const { useEvents, useGate, useGateStatus, useLiveCollection, useSubscription } = hooksFor<Topics>();
