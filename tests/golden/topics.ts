// Written by `headgate types` from the schemas of topics. Do not edit.

/** Patterns of topics, and the data of their events. */
export interface Topics {
  "odd": Odd;
  "orders.*.paid": Paid;
  "orders.*.shipped": Shipped;
  "refunds.#": Paid;
  "tree.#": Tree;
}

/** A place on a street. */
export interface Address {
  /** minLength: 1 */
  street: string;
  /** pattern: ^[0-9]{5}$ */
  zip?: string;
}

/**
 * In cents.
 * minimum: 0
 */
export type Money = number;

/** also checked: if */
export interface Odd {
  class?: boolean;
  msgspec?: 1;
  __init__?: "x";
  /** minItems: 1 */
  "a b"?: [number, (string | null)?];
  /** minItems: 2 */
  pair?: [number, string];
  counts?: { [name: string]: number };
  either?: OddEitherOption1 | OddEitherOption2;
  more?: OddMore;
  never?: never;
  anything?: unknown;
  needed: unknown;
}

export interface OddEitherOption1 {
  x: number;
}

export interface OddEitherOption2 {
  y: number;
}

export interface OddMore {
  id: string;
  [name: string]: unknown;
}

export type Paid = { amount: Money; } & { by: PaidByCard | PaidByCash; };

/** Card */
export interface PaidByCard {
  kind: "card";
  last4: string;
}

/** Cash */
export interface PaidByCash {
  kind: "cash";
}

/** An order has left the house. */
export interface Shipped {
  carrier: "UPS" | "DHL" | null;
  to: Address;
  /** minItems: 1 */
  lines: ShippedLinesItem[];
  /**
   * With the box. *∕ No comment ends here.
   * exclusiveMinimum: 0
   */
  "weight-kg"?: number;
  from?: string | null;
  /**
   * format: uri
   * @deprecated
   */
  tracking?: string;
}

export interface ShippedLinesItem {
  sku: string;
  count: number;
}

export type Tree = (Tree | string)[];
