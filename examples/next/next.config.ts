import type { NextConfig } from "next";

/** Where the shop and its gateway are. */
const SHOP = process.env.SHOP_URL ?? "http://127.0.0.1:8000";

const config: NextConfig = {
  // The gateway's endpoint ends with a slash, which Next.js would redirect away.
  skipTrailingSlashRedirect: true,
  rewrites: async () => [
    { source: "/socket.io/:path*", destination: `${SHOP}/socket.io/:path*` },
    { source: "/orders/:path*", destination: `${SHOP}/orders/:path*` },
  ],
};

export default config;
