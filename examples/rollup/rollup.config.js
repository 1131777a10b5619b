import resolve from "@rollup/plugin-node-resolve";

/** socket.io-client becomes a chunk of its own, which a page requests only where no WebSocket gets through. */
export default {
  input: "main.js",
  output: { dir: "dist", format: "es" },
  plugins: [resolve({ browser: true })],
};
