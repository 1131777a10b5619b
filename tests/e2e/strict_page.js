/** The page of `/strict`: the client as a module. Everything that a test asks about is in `window.page`. */
import { connect } from "./headgate.js";

const page = {
  seen: [],
  told: [],
  refusals: [],
  token: async () => (await fetch("/token?life=600", { method: "POST" })).text(),
};
page.gate = connect(location.origin, { token: page.token, reconnectDelayMinMs: 50, reconnectDelayMaxMs: 200 });
page.gate.on("numbers.*", (n) => page.seen.push(n));
page.gate.on("connection:refused", ({ code }) => page.refusals.push(code));
page.gate.on("status:change", ({ status }) => page.told.push(status));
window.page = page;
