/** An order, as the shop has it. */
export interface Order {
  id: number;
  version: number;
  status: "new" | "shipped";
}

/** The payload of each topic. */
export interface Topics {
  "orders.*.created": Order;
  "orders.*.shipped": Order;
}
