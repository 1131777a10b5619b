/** The page of `/presence`: a member of `numbers.room`. The subjects of a test are in `window.page`. */
import { connect } from "./headgate.js";
import { presence } from "./headgate.presence.js";

const query = new URLSearchParams(location.search);
const page = {
  told: [],
  async token() {
    const answer = await fetch(`/token?life=600&user=${query.get("user")}`, { method: "POST" });
    return answer.text();
  },
};
page.gate = connect(location.origin, { token: page.token, reconnectDelayMinMs: 50, reconnectDelayMaxMs: 200 });
page.room = presence(page.gate, "numbers.room", { meta: { page: query.get("page") } });
for (const name of ["join", "leave"]) page.room.on(`member:${name}`, ({ user }) => page.told.push(`${user} ${name}`));
page.shown = () => page.room.members.map(({ user, connections }) => `${user} ${connections}`).join(", ");
window.page = page;
