/** docs/howto/tanstack-query.md: its functions, as they stand there, with a real QueryClient. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { afterEach, it } from "node:test";
import { QueryClient, QueryObserver } from "@tanstack/query-core";
import { connect } from "#headgate";
import { FakeGateway, settle } from "./fake-gateway.js";

const page = await readFile(new URL("../../docs/howto/tanstack-query.md", import.meta.url), "utf8");

/** Import a block of the page by its title. @param {string} title */
async function block(title) {
  const [, source] = page.match(new RegExp(`\`\`\`js title="${title}"\\n(.*?)\`\`\``, "s")) ?? [];
  assert.ok(source, title);
  return import(`data:text/javascript,${encodeURIComponent(source.replace('"headgate"', JSON.stringify(import.meta.resolve("#headgate"))))}`);
}

const { follow } = await block("follow.js");
const { invalidateBy } = await block("invalidate.js");
const queryKey = ["orders"];
/** @type {(() => void)[]} */
const ends = [];
afterEach(() => {
  for (const end of ends.splice(0)) end();
});

function begin() {
  const gateway = new FakeGateway();
  const gate = connect("http://gateway.test", { io: gateway.io });
  const queryClient = new QueryClient();
  ends.push(() => gate.close(), () => queryClient.clear());
  return { gateway, gate, queryClient };
}

it("a query is fetched once the pattern is active, and changed by each event", async () => {
  const { gateway, gate, queryClient } = begin();
  const queryFn = async () => [{ id: "7", version: 1, status: "new" }];
  const apply = (orders, data, { topic }) => orders.map((order) => (order.id === topic.split(".")[1] ? { ...order, ...data } : order));
  const end = follow(gate, queryClient, { queryKey, pattern: "orders.#", queryFn, apply });
  await gateway.letIn();
  assert.deepEqual(queryClient.getQueryData(queryKey), [{ id: "7", version: 1, status: "new" }]);
  gateway.event("orders.7.paid", { version: 2, status: "paid" }, 101);
  await settle();
  assert.deepEqual(queryClient.getQueryData(queryKey), [{ id: "7", version: 2, status: "paid" }]);
  end();
  gateway.event("orders.7.shipped", { version: 3 }, 102);
  await settle();
  assert.equal(/** @type {any} */ (queryClient.getQueryData(queryKey))[0].version, 2);
});

it("a query is fetched again after an event and after a loss, and no more once that has ended", async () => {
  const { gateway, gate, queryClient } = begin();
  let fetched = 0;
  const observer = new QueryObserver(queryClient, { queryKey, queryFn: async () => ++fetched, staleTime: Infinity });
  ends.unshift(observer.subscribe(() => {}));
  const end = invalidateBy(gate, queryClient, queryKey, "orders.#");
  await gateway.letIn();
  assert.equal(fetched, 1);
  gateway.event("orders.7.paid", null, 101);
  await settle();
  assert.equal(fetched, 2);
  gateway.emit("gap", { patterns: ["orders.#"], from: 102, to: 103, count: 2, bytes: 1, reason: "trimmed", recoverable: false });
  await settle();
  assert.equal(fetched, 3);
  end();
  gateway.event("orders.7.paid", null, 104);
  await settle();
  assert.equal(fetched, 3);
});
