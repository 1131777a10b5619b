/**
 * The dispatch rate of the browser client, compared with mitt and Backbone.Events. Runs in Node and in a page; bench/client/run.mjs starts both.
 *
 * Each scenario repeats rounds until a time is over and counts the best round, on one thread: other work on the machine only
 * makes rounds slower. Every handler adds to a checked sum, so no call can be optimised away.
 *
 * @typedef {{ scenario: string, unit: "events/s" | "ms", value: number, peer?: string }} Figure
 */

/** So many that a browser's coarse clock does not decide. */
const ROUND_EVENTS = 50_000;
const MANY = 1000;
const ON = 10_000;

/** @param {{ Dispatcher: any, connect: any, mitt: any, Backbone: any }} libraries @param {number} budgetMs for each figure @returns {Figure[]} */
export function measure({ Dispatcher, connect, mitt, Backbone }, budgetMs) {
  /** @type {Figure[]} */
  const figures = [];

  /**
   * @param {string} scenario @param {string} peer @param {(count: { n: number }) => (nth: number) => void} prepare returns a step that must call each handler
   * @param {number} [handlers]
   */
  function rate(scenario, peer, prepare, handlers = 1) {
    const roundEvents = Math.ceil(ROUND_EVENTS / handlers);
    const count = { n: 0 };
    const step = prepare(count);
    let best = 0;
    let sent = 0;
    for (const end = performance.now() + budgetMs; performance.now() < end; ) {
      const began = performance.now();
      for (let nth = 0; nth < roundEvents; nth++) step(nth);
      sent += roundEvents;
      best = Math.max(best, (roundEvents * 1000) / (performance.now() - began));
    }
    if (count.n !== sent * handlers) throw new Error(`${scenario}, ${peer}: ${count.n} calls for ${sent} events`);
    figures.push({ scenario, peer, unit: "events/s", value: Math.round(best) });
  }

  /** @param {string} scenario @param {string} peer @param {() => void} act */
  function time(scenario, peer, act) {
    let best = Infinity;
    for (const end = performance.now() + budgetMs; performance.now() < end; ) {
      const began = performance.now();
      act();
      best = Math.min(best, performance.now() - began);
    }
    figures.push({ scenario, peer, unit: "ms", value: Math.round(best * 100) / 100 });
  }

  const topics = Array.from({ length: MANY }, (_, n) => `orders.${n}.shipped`);
  const describe = (/** @type {string} */ pattern) => ({ topic: "t", data: 1, pattern });

  const one = "one name";
  rate(one, "mitt", (count) => {
    const bus = mitt();
    bus.on("orders", () => count.n++);
    return () => bus.emit("orders", 1);
  });
  rate(one, "Backbone", (count) => {
    const bus = { ...Backbone.Events };
    bus.on("orders", () => count.n++);
    return () => bus.trigger("orders", 1);
  });
  rate(one, "headgate trigger", (count) => {
    const bus = new Dispatcher().on("orders", () => count.n++);
    return () => bus.trigger("orders", 1);
  });
  rate(one, "headgate event", (count) => {
    const bus = new Dispatcher().on("orders", () => count.n++);
    return () => bus.dispatch("orders", 1, describe);
  });

  for (const handlers of [10, 100, 1000]) {
    const scenario = `one name, ${handlers} handlers`;
    /** @type {Record<string, { make: () => any, send: string }>} */
    const buses = { mitt: { make: () => mitt(), send: "emit" }, Backbone: { make: () => ({ ...Backbone.Events }), send: "trigger" }, "headgate event": { make: () => new Dispatcher(), send: "dispatch" } };
    for (const [peer, { make, send }] of Object.entries(buses)) {
      rate(
        scenario,
        peer,
        (count) => {
          const bus = make();
          for (let n = 0; n < handlers; n++) bus.on("orders", () => count.n++);
          return () => bus[send]("orders", 1, describe);
        },
        handlers,
      );
    }
  }

  const many = `${MANY} topics`;
  rate(many, "mitt", (count) => {
    const bus = mitt();
    for (const topic of topics) bus.on(topic, () => count.n++);
    return (nth) => bus.emit(topics[nth % MANY], 1);
  });
  rate(many, "Backbone", (count) => {
    const bus = { ...Backbone.Events };
    for (const topic of topics) bus.on(topic, () => count.n++);
    return (nth) => bus.trigger(topics[nth % MANY], 1);
  });
  rate(many, "headgate event", (count) => {
    const bus = new Dispatcher();
    for (const topic of topics) bus.on(topic, () => count.n++);
    return (nth) => bus.dispatch(topics[nth % MANY], 1, describe);
  });

  const kinds = { "word in the middle": (/** @type {number} */ n) => `orders.${n}.*`, "wildcard first": (/** @type {number} */ n) => `*.${n}.shipped`, "# last": (/** @type {number} */ n) => `orders.${n}.#` };
  for (const [kind, patternOf] of Object.entries(kinds)) {
    rate(`${MANY} patterns, one matches: ${kind}`, "headgate event", (count) => {
      const bus = new Dispatcher();
      for (let n = 0; n < MANY; n++) bus.on(patternOf(n), () => count.n++);
      return (nth) => bus.dispatch(topics[nth % MANY], 1, describe);
    });
  }

  const names = Array.from({ length: ON }, (_, n) => `orders.${n}`);
  const handlers = names.map(() => () => {});
  /** @type {Record<string, () => any>} */
  const buses = { mitt: () => mitt(), Backbone: () => ({ ...Backbone.Events }), headgate: () => new Dispatcher(), "headgate, a gate": () => connect("http://localhost", { autoConnect: false }) };
  for (const [peer, make] of Object.entries(buses)) {
    time(`${ON} on, a name each`, peer, () => {
      const bus = make();
      for (let n = 0; n < ON; n++) bus.on(names[n], handlers[n]);
    });
    time(`${ON} on, one name`, peer, () => {
      const bus = make();
      for (let n = 0; n < ON; n++) bus.on("orders", handlers[n]);
    });
  }
  for (const [peer, make] of Object.entries(buses)) {
    const bus = make();
    time(`${ON} on and off by callback, one name, last first`, peer, () => {
      for (let n = 0; n < ON; n++) bus.on("orders", handlers[n]);
      for (let n = ON; n--; ) bus.off("orders", handlers[n]);
    });
  }
  return figures;
}
