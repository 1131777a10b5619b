import { GateProvider } from "headgate/react";
import type { ReactNode } from "react";

export const metadata = { title: "Orders", icons: "data:," };

/** A server renders this, and connects to nothing: the page does when it is mounted. */
export default function Layout({ children }: { children: ReactNode }) {
  return (
    <html lang="en">
      <body>
        <GateProvider>{children}</GateProvider>
      </body>
    </html>
  );
}
