/**
 * What is wrong now, in words, each with what to do about it; worst first. Pure.
 *
 * In: a frame of vitals, what Redis says of itself, the consumers, and the gateways that are on another Redis server, as far as they
 * are known. Out: troubles.
 *
 * @typedef {"bad" | "warning"} Severity
 * @typedef {{ severity: Severity, text: string, remedy: string }} Trouble
 */
import { bytes, count, counted, duration, milliseconds, percent } from "./format.js";

/** From here on a loop or Redis is slow enough to be felt. */
const SLOW_MS = 250;
const FULL_QUEUE = 0.75;
const OLD_S = 5;
const FULL_MEMORY = 0.9;
const LAGGING = 1000;
const IDLE_S = 60;
/** A client that has lost its connection is back within this. */
const RECONNECT_S = 5;

/**
 * @param {any} frame
 * @param {any[] | null} [servers] of Redis
 * @param {any[] | null} [consumers]
 * @param {{ text: string, remedy: string }[]} [elsewhere]
 * @returns {Trouble[]}
 */
export function troubles(frame, servers = null, consumers = null, elsewhere = []) {
  /** @type {Trouble[]} */
  const found = [];
  const bad = (/** @type {string} */ text, /** @type {string} */ remedy) => found.push({ severity: "bad", text, remedy });
  const warning = (/** @type {string} */ text, /** @type {string} */ remedy) => found.push({ severity: "warning", text, remedy });

  if (frame.error) bad("Redis does not answer this gateway.", `${frame.error}. You see this one process only. Publishers get errors; browsers stay connected and catch up.`);
  for (const space of frame.namespaces) {
    if (space.bus_up < space.processes) {
      const where = space.processes > 1 ? ` at ${count(space.processes - space.bus_up)} of ${counted(space.processes, "process", "processes")}` : "";
      bad(`/${space.name} is not live${where}.`, `${space.error || "The live feed is not proven to be complete"}. Events wait in the log and come when Redis is back.`);
    }
    if (space.log_retention_s && space.log_retention_s < RECONNECT_S) warning(`The log of /${space.name} keeps an event for ${duration(space.log_retention_s)} only.`, "A client takes up to 5 s to come back, and then misses events. Raise HEADGATE_LOG_MAX_BYTES or HEADGATE_LOG_MAX_EVENTS, or publish less.");
  }
  for (const { text, remedy } of elsewhere) bad(`${capital(text)}.`, `${capital(remedy)}.`);
  for (const process of frame.processes) {
    const { name } = process;
    if (process.silent_s) bad(`${name} has reported nothing for ${duration(process.silent_s)}.`, "It was killed, it hangs, or it cannot reach Redis. Read its log; its clients go to another gateway.");
    else if (process.admission === "shedding") bad(`${name} refuses newcomers: its event loop lags.`, "Code of the application holds up the loop, or the machine is too busy. Its log names the code. Add a worker.");
    else if (process.admission === "full") warning(`${name} is full.`, "It has HEADGATE_MAX_CLIENTS clients and refuses newcomers. Add a gateway, or raise the limit.");
    if (!process.revocations_known) bad(`${name} does not know who is revoked.`, "It admits no client until Redis answers.");
    if (process.draining) warning(`${name} is about to stop.`, "It moves its clients to other gateways. Nothing to do.");
    if (!process.silent_s && process.lag && process.lag.max > SLOW_MS) warning(`The event loop of ${name} was blocked for ${milliseconds(process.lag.max)}.`, "Code of the application blocked it. The log has a line with the stack.");
  }
  for (const paused of new Set(frame.processes.flatMap((/** @type {any} */ process) => process.paused))) {
    warning(`An operator has paused ${String(paused).replace("namespace:", "/")}.`, "The command headgate resume ends the pause.");
  }
  const { now, rates } = frame;
  if (now.fullest >= FULL_QUEUE) warning(`The fullest client queue is ${percent(now.fullest)} full.`, "A browser reads too slowly. It gets a gap for what it misses, and no other client waits. The view Clients names it.");
  if (now.oldest_s >= OLD_S) warning(`An event has waited for a browser for ${duration(now.oldest_s)}.`, "That browser's network or page is slow. It is disconnected after HEADGATE_WRITE_DEADLINE_S.");
  if (rates.discarded >= 1) warning(`${count(rates.discarded)} events per second are left out for slow browsers, which are notified.`, "Subscriptions with drop accept that. With catch_up they come from the log.");
  if (rates.repaired >= 1) warning(`${count(rates.repaired)} events per second had to be read again from the log.`, "The connection to Redis loses messages: check its output buffer limits and the network.");
  if (frame.redis && frame.redis.p99 > SLOW_MS) warning(`Redis takes ${milliseconds(frame.redis.p99)} for one call in a hundred.`, "Look for slow commands, swapping, or a disk that is busy with the append-only file.");
  for (const server of servers ?? []) {
    const where = servers && servers.length > 1 ? `${server.address}: ` : "";
    if (server.maxmemory && server.used_memory > FULL_MEMORY * server.maxmemory) bad(`${where}Redis is ${percent(server.used_memory / server.maxmemory)} full.`, `It uses ${bytes(server.used_memory)} of ${bytes(server.maxmemory)}. Raise maxmemory, or lower HEADGATE_LOG_MAX_BYTES.`);
    if (server.evicted_keys) bad(`${where}Redis has evicted ${counted(server.evicted_keys, "key")}.`, "Events are lost that way. Set maxmemory-policy noeviction.");
    for (const line of server.advice) {
      const [text, remedy] = split(line);
      if (remedy) warning(`${where}${text}.`, `${remedy}.`);
    }
  }
  for (const consumer of consumers ?? []) {
    const name = `Consumer ${consumer.name}`;
    if (consumer.dead) warning(`${name} has given up ${counted(consumer.dead, "task")}.`, "The view Consumers shows why, and has them tried again.");
    if (consumer.missed) bad(`${name} has missed ${counted(consumer.missed, "event")}.`, "The log was trimmed before it came to them. Raise HEADGATE_LOG_MAX_EVENTS or HEADGATE_LOG_MAX_AGE_S.");
    if (consumer.elsewhere.length) bad(`${name} is on another Redis server, at ${consumer.elsewhere.join(", ")}.`, "What is published here does not reach it, and its lag here does not count that. Restart it, if it has not ended.");
    if (consumer.lag >= LAGGING) warning(`${name} is ${counted(consumer.lag, "event")} behind.`, "Start another instance, or find out what its work waits for.");
    if (consumer.idle_s !== null && consumer.idle_s > IDLE_S && consumer.lag) bad(`${name} does not run.`, `It was last seen ${duration(consumer.idle_s)} ago. Start it with the command headgate consume, or remove it.`);
  }
  return found.sort((one, other) => rank(one) - rank(other));
}

/** @param {Trouble} trouble */
const rank = ({ severity }) => (severity === "bad" ? 0 : 1);

/** Take a line of advice apart: what is so, and what to set. @param {string} line @returns {[string, string | undefined]} */
function split(line) {
  const body = line.replace(/^\w+: /, "");
  const at = body.search(/: set |; a full |; set /);
  if (at < 0) return [capital(body), undefined];
  return [`Redis: ${body.slice(0, at)}`, capital(body.slice(at + 2))];
}

/** @param {string} text */
const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);
