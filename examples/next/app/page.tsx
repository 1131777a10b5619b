import { Orders } from "./orders";

export default function Page() {
  return (
    <main>
      <h1>Orders</h1>
      <Orders />
    </main>
  );
}
