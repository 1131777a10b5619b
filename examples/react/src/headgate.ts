import { hooksFor } from "headgate/react";
import type { Topics } from "./topics";

export const { useEvents, useGate, useGateStatus, useLiveCollection, useSubscription } = hooksFor<Topics>();
