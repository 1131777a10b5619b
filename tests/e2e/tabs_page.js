/** The page of `/tabs`: one of several tabs of a user that share a connection. Everything that a test asks about is in `window.page`. */
import { connect } from "./headgate.tabs.js";

const query = new URLSearchParams(location.search);
const page = {
  seen: [],
  told: [],
  shown: [],
  async token() {
    const answer = await fetch(`/token?life=600&user=${query.get("user") ?? "ann"}`, { method: "POST" });
    return answer.text();
  },
};
page.gate = connect(location.origin, { token: page.token, reconnectDelayMinMs: 50, reconnectDelayMaxMs: 200 });
page.gate.on("numbers.*", (n) => page.seen.push(n));
page.gate.on("toasts.*", async (text, event) => {
  if (await page.gate.tabs.claim(event)) page.shown.push(text);
});
page.gate.on("all", (name) => {
  if (name.includes(":") && name !== "state:change") page.told.push(name);
});
window.page = page;
