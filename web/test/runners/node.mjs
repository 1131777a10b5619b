/** An application's tests under Node's own runner: without a page, or with one of happy-dom (`node --test node.mjs`, `PAGE=happy-dom`). */
import { test } from "node:test";
import * as headgate from "headgate";
import scenes from "./scenarios.cjs";

const hasPage = process.env.PAGE === "happy-dom";
if (hasPage) {
  const { GlobalWindow } = await import("happy-dom");
  const window = new GlobalWindow({ url: "https://shop.test" });
  Object.assign(globalThis, { window, document: window.document });
}
const hooks = await import("headgate/react");

for (const [name, run] of Object.entries(scenes.scenarios({ ...headgate, ...hooks }, hasPage))) test(name, run);
