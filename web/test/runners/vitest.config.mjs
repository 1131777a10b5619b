/** The same tests in a page of jsdom, and in one of happy-dom. */
export default { test: { projects: ["jsdom", "happy-dom"].map((name) => ({ test: { name, environment: name } })) } };
