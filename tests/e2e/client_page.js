/**
 * The page of client_app.py: everything that a test asks about is in `window.page`. What was seen is kept over a reload, as an
 * application would keep its state, together with the position to resume from.
 */
(() => {
  const kept = JSON.parse(sessionStorage.getItem("kept") ?? "null");
  const query = new URLSearchParams(location.search);
  const page = {
    seen: kept?.seen ?? [],
    told: [],
    tokens: 0,
    resyncs: 0,
    async token() {
      page.tokens++;
      const answer = await fetch(`/token?life=${query.get("life") ?? 600}`, { method: "POST" });
      return answer.text();
    },
  };
  page.gate = headgate.connect(location.origin, {
    token: page.token,
    resume: kept?.resume,
    resync: () => page.resyncs++,
    reconnectDelayMinMs: Number(query.get("delay") ?? 50),
    reconnectDelayMaxMs: Number(query.get("delay") ?? 200),
  });
  page.gate.on("numbers.*", (n) => page.seen.push(n));
  page.gate.on("all", (name) => name.includes(":") && name !== "state:change" && page.told.push(name));

  page.orders = new headgate.LiveCollection([], { gate: page.gate, topic: "orders" });
  page.orders.on("add", (order) => {
    const item = document.createElement("li");
    item.textContent = order.get("note");
    document.querySelector("#list").append(item);
  });
  page.notifications = new headgate.NotificationList([], { gate: page.gate, patterns: ["orders.#"] });

  addEventListener("pageshow", ({ persisted }) => persisted && page.told.push("shown again"));
  addEventListener("pagehide", () => {
    const { epoch, offset } = page.gate.state;
    sessionStorage.setItem("kept", JSON.stringify({ seen: page.seen, resume: epoch === null ? undefined : { epoch, offset } }));
  });
  window.page = page;
})();
