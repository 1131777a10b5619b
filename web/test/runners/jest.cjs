/** An application's tests under jest and jsdom. */
const { scenarios } = require("./scenarios.cjs");

for (const [name, run] of Object.entries(scenarios({ ...require("headgate"), ...require("headgate/react") }, true))) test(name, run);
