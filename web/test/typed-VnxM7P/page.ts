
import { connect } from "headgate";
const gate = connect("https://example.com", { token: () => fetch("/token").then((answer) => answer.text()), resync: ({ count }) => count?.toFixed() });
gate.on("orders.*.shipped", (order, event) => console.log(event.topic.length, order.carrier));
gate.once("orders.*.returned", () => {});
gate.on("delivery:gap", (gap) => console.warn(gap.count, gap.reason));
gate.on("connection:refused", (error, { delay_ms }) => console.warn(error.code, delay_ms));
gate.on({ "a.b": (data) => data, "connection:up": ({ session }) => session });
gate.on("all", (name, ...more) => console.log(name.length, more));
gate.listenTo(gate, "a.b", (data) => data);
gate.subscribe("orders.#", { since: { last: 5 }, overflow: "latest" }, (data, { offset, replayed }) => [data, offset?.toFixed(), replayed]);
const { offset } = await gate.publish("a.b", 1, { id: "x" });
for await (const { topic } of gate.events("orders.#", { limit: offset })) topic.length;
// @ts-expect-error no such policy
gate.subscribe("a", { overflow: "none" }, () => {});
