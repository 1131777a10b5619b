/**
 * The page of client_app.py: everything that a test asks about is in `window.page`. It keeps its seen events over a reload, as an
 * application would keep its state, together with the position to resume from.
 */
(() => {
  const kept = JSON.parse(sessionStorage.getItem("kept") ?? "null");
  const query = new URLSearchParams(location.search);
  const page = {
    seen: kept?.seen ?? [],
    told: [],
    downs: [],
    reasons: [],
    tokens: 0,
    async token() {
      page.tokens++;
      const answer = await fetch(`/token?life=${query.get("life") ?? 600}`, { method: "POST" });
      return answer.text();
    },
  };
  page.gate = headgate.connect(location.origin, {
    token: page.token,
    transport: query.get("transport") ?? undefined,
    resume: kept?.resume,
    inboxLimit: Number(query.get("inbox") ?? 10_000),
    reconnectDelayMinMs: 50,
    reconnectDelayMaxMs: 200,
  });
  const handlerMs = Number(query.get("slow") ?? 0);
  page.gate.on("numbers.*", (n) => {
    page.seen.push(n);
    const end = performance.now() + handlerMs;
    while (performance.now() < end);
  });
  page.gate.on("all", (name, what) => {
    if (name.includes(":") && !["state:change", "status:change"].includes(name)) page.told.push(name);
    if (name === "connection:down") page.downs.push(what.reason);
    if (name === "connection:refused") page.reasons.push(what.message);
  });

  page.orders = new headgate.LiveCollection([], { gate: page.gate, topic: "orders" });
  page.orders.on("add", (order) => {
    const item = document.createElement("li");
    item.textContent = order.get("note");
    document.querySelector("#list").append(item);
  });

  addEventListener("pageshow", ({ persisted }) => persisted && page.told.push("shown again"));
  addEventListener("pagehide", () => {
    const { epoch, offset } = page.gate.state;
    sessionStorage.setItem("kept", JSON.stringify({ seen: page.seen, resume: epoch === null ? undefined : { epoch, offset } }));
  });
  window.page = page;
})();
