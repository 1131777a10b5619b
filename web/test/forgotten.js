/** Whether objects are forgotten: tests of memory that is let go. */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc");

/** Return how many of some objects are still held, after a collection. @param {WeakRef<object>[]} held */
export async function heldOf(held) {
  // A WeakRef holds its object until the end of the turn in which it was made or read.
  await new Promise((resolve) => setImmediate(resolve));
  collect();
  return held.filter((each) => each.deref()).length;
}
