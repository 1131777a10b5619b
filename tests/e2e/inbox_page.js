/** The page of `/inbox`: the inbox of its user, with an outbox. The subjects of a test are in `window.page`. */
import { connect as connectAlone } from "./headgate.js";
import { badgeTitle, createInbox } from "./headgate.inbox.js";
import { createOutbox } from "./headgate.offline.js";
import { connect as connectTabs } from "./headgate.tabs.js";

const query = new URLSearchParams(location.search);
const [user, way] = [query.get("user"), query.get("way")];
const token = async () => (await fetch(`/token?life=600&user=${user}`, { method: "POST" })).text();
const connect = way === "tabs" ? connectTabs : connectAlone;
const gate = connect(location.origin, { token, ...(way === "stream" ? { transport: "stream" } : {}), reconnectDelayMinMs: 50, reconnectDelayMaxMs: 200 });
const inbox = createInbox(gate, { outbox: createOutbox(gate), pageSize: 100 });
inbox.onAlert(({ id }) => page.alerts.push(id));
badgeTitle(inbox);
const page = {
  gate,
  inbox,
  failed: [],
  alerts: [],
  act: (name, ...ids) => inbox[name](...ids).catch(({ code }) => page.failed.push(code)),
  shown: () => ({ ...inbox.getSnapshot(), items: inbox.items.map(({ id, read }) => [id, read]) }),
};
window.page = page;
