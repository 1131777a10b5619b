import { defineConfig } from "vite";

const gateway = "http://127.0.0.1:8000";

export default defineConfig({
  // In development the page and the gateway are of one origin, as they are behind a proxy in production.
  server: { proxy: { "/orders": gateway, "/socket.io": { target: gateway, ws: true } } },
});
