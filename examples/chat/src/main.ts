import { connect } from "headgate";
import { presence } from "headgate/presence";

const form = document.querySelector("form")!;
const [field, button] = [form.querySelector("input")!, form.querySelector("button")!];

/** Show a message, and return its line. */
function show(name: string, text: string): HTMLLIElement {
  const line = Object.assign(document.createElement("li"), { textContent: `${name}: ${text}` });
  document.querySelector("#messages")!.append(line);
  line.scrollIntoView({ block: "nearest" });
  return line;
}

function join(name: string): void {
  const gate = connect<{ "chat.lobby.*": { text: string } }>(location.origin, { auth: { name } });
  const room = presence<{ typing: boolean }>(gate, "chat.lobby", { meta: { typing: false } });
  room.on("change", ({ members }) => {
    document.querySelector("#members")!.textContent = members.map(({ user, meta }) => (meta?.typing ? `${user} …` : user)).join(", ");
  });

  // The latest 50 messages of the log, then every new one. The last word of the topic is the sender, as the gateway grants it.
  gate.subscribe("chat.lobby.*", { since: { last: 50 } }, ({ text }, { topic }) => void show(topic.split(".")[2]!, text));
  gate.on("delivery:gap", ({ count }) => void show("Headgate", `${count} messages are missing`));

  let idle = 0;
  field.oninput = () => {
    room.update({ typing: true });
    clearTimeout(idle);
    idle = window.setTimeout(() => room.update({ typing: false }), 2000);
  };
  form.onsubmit = (event) => {
    event.preventDefault();
    const line = show(name, field.value);
    // All but me: this page has shown the message already.
    gate.publish(`chat.lobby.${name}`, { text: field.value }, { echo: false }).catch(() => (line.className = "failed"));
    field.value = "";
    room.update({ typing: false });
  };
}

form.onsubmit = (event) => {
  event.preventDefault();
  join(field.value);
  Object.assign(field, { value: "", pattern: ".+", maxLength: 1000, placeholder: "Message", ariaLabel: "Message" });
  button.textContent = "Send";
};
