/** docs/howto/tanstack-query.md: its functions, as they stand there, with a real QueryClient. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { afterEach, it, mock } from "node:test";
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
  mock.restoreAll();
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

/** A server whose answers come when a test says so, and the query of a component that shows them. @param {QueryClient} queryClient */
function show(queryClient) {
  const server = { state: "new", requests: /** @type {(() => void)[]} */ ([]) };
  const queryFn = () => {
    const { state } = server;
    return new Promise((resolve) => server.requests.push(() => resolve(state)));
  };
  const observer = new QueryObserver(queryClient, { queryKey, queryFn, staleTime: Infinity });
  ends.unshift(observer.subscribe(() => {}));
  return server;
}

it("a query is fetched again after an event and after a loss, and no more once that has ended", async () => {
  mock.method(Math, "random", () => 0);
  const { gateway, gate, queryClient } = begin();
  const server = show(queryClient);
  const fetched = async () => {
    server.requests.at(-1)?.();
    await settle();
    return server.requests.length;
  };
  const end = invalidateBy(gate, queryClient, queryKey, "orders.#");
  assert.equal(await fetched(), 1);
  await gateway.letIn();
  assert.equal(await fetched(), 2, "when the pattern is active");
  for (let offset = 101; offset < 110; offset++) gateway.event("orders.7.paid", null, offset);
  await settle();
  assert.equal(await fetched(), 4, "after the first of many events, and after the others");
  assert.equal(await fetched(), 4);
  gateway.emit("gap", { patterns: ["orders.#"], from: 110, to: 111, count: 2, bytes: 1, reason: "trimmed", recoverable: false });
  await new Promise((resolve) => setTimeout(resolve));
  assert.equal(await fetched(), 5);
  end();
  gateway.event("orders.7.paid", null, 112);
  assert.equal(await fetched(), 5);
});

it("an answer that was read before an event does not stay", async () => {
  const { gateway, gate, queryClient } = begin();
  const server = show(queryClient);
  ends.unshift(invalidateBy(gate, queryClient, queryKey, "orders.#"));
  await gateway.letIn();
  for (const state of ["paid", "shipped"]) {
    server.state = state;
    gateway.event(`orders.7.${state}`, null, 100 + state.length);
    for (let answered = 0; answered < server.requests.length; answered++) {
      server.requests[answered]();
      await settle();
    }
    assert.equal(queryClient.getQueryData(queryKey), state);
  }
});

it("a change between the first answer and the acknowledgement is fetched", async () => {
  const { gateway, gate, queryClient } = begin();
  const server = show(queryClient);
  ends.unshift(invalidateBy(gate, queryClient, queryKey, "orders.#"));
  server.requests[0]();
  await settle();
  server.state = "paid";
  await gateway.letIn();
  server.requests.at(-1)?.();
  await settle();
  assert.equal(queryClient.getQueryData(queryKey), "paid");
});
