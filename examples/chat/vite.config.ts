import { defineConfig } from "vite";

export default defineConfig({
  // In development the page and the gateway share one origin, as they do behind a proxy in production.
  server: { proxy: { "/socket.io": { target: "http://127.0.0.1:8000", ws: true } } },
});
