/** An application's tests under vitest, in a page of jsdom or of happy-dom. */
import { createRequire } from "node:module";
import * as headgate from "headgate";
import * as hooks from "headgate/react";
import { test } from "vitest";

const { scenarios } = createRequire(import.meta.url)("./scenarios.cjs");

for (const [name, run] of Object.entries(scenarios({ ...headgate, ...hooks }, true))) test(name, run);
