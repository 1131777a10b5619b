/** A real gateway for the tests of the client: `headgate serve` with a private Redis, in a folder of the test's own. */
import { execFile, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { WebSocket } from "ws";

// Node 20 has none; without one the client would go to socket.io-client at once.
Object.assign(globalThis, { WebSocket: globalThis.WebSocket ?? WebSocket });

export const COMMAND = process.env.HEADGATE_COMMAND ?? fileURLToPath(new URL("../../../.venv/bin/headgate", import.meta.url));
const READY = /ready at (http:\/\/\S+?)\/?\s/;
// A process that starts needs whole seconds of the processor, and others may want it too.
const START_DEADLINE_MS = 120_000;
const STOP_DEADLINE_MS = 30_000;

// A slow disk makes Redis wait, and calls fail at once for a second after one that had no answer.
const PATIENCE_MS = 60_000;

/**
 * Have a page publish as an application does that wants its event in the log, once more, with the same id, where Redis had no answer.
 * @param {import("headgate").Gate} gate
 */
export function patient(gate) {
  const publish = gate.publish.bind(gate);
  gate.publish = async (topic, data, { id = randomUUID(), ...rest } = {}) => {
    for (const end = performance.now() + PATIENCE_MS; ; ) {
      try {
        return await publish(topic, data, { id, ...rest });
      } catch (/** @type {any} */ error) {
        if (error.code !== "bus_unavailable" || performance.now() > end) throw error;
        await sleep(200);
      }
    }
  };
  return gate;
}

export class GatewayProcess {
  url = "";
  #folder = "";
  #output = "";
  /** @type {import("node:child_process").ChildProcess | undefined} */
  #process;

  /** @param {Record<string, string>} [settings] names as in the environment @param {string[]} [words] more of the command line */
  constructor(settings = {}, words = []) {
    this.settings = settings;
    this.words = words;
  }

  /** Start, and return when it is ready. A second start uses the same port and data. */
  async start() {
    this.#folder ||= await mkdtemp(join(tmpdir(), "headgate-client-"));
    const foreign = Object.entries(process.env).filter(([name]) => !name.startsWith("HEADGATE_"));
    const port = this.url ? new URL(this.url).port : "0";
    const env = { ...Object.fromEntries(foreign), HEADGATE_DATA_DIR: this.#data, HEADGATE_DEV: "1", HEADGATE_PORT: port, HEADGATE_DRAIN_S: "0", ...this.settings };
    env.PYTHONPATH = [this.settings.PYTHONPATH, process.env.PYTHONPATH].filter(Boolean).join(delimiter);
    this.#output = "";
    const started = spawn(COMMAND, ["serve", ...this.words], { cwd: this.#folder, env, stdio: ["ignore", "pipe", "pipe"] });
    this.#process = started;
    const address = await new Promise((resolve, reject) => {
      const give = (/** @type {string} */ why) => {
        started.kill("SIGKILL"); // or the tests, which have nothing to stop, would never end
        reject(new Error(`gateway: ${why}\n${this.#output}`));
      };
      const deadline = setTimeout(() => give("not ready in time"), START_DEADLINE_MS);
      const read = (/** @type {Buffer} */ text) => {
        this.#output = (this.#output + text).slice(-100_000);
        const found = READY.exec(this.#output);
        if (found) resolve(found[1]);
      };
      started.stdout.on("data", read);
      started.stderr.on("data", read);
      started.once("error", (error) => give(error.message));
      started.once("exit", (code) => give(`ended with ${code}`));
      started.once("exit", () => clearTimeout(deadline));
      started.stdout.once("end", () => clearTimeout(deadline));
      this.clearDeadline = () => clearTimeout(deadline);
    });
    this.clearDeadline?.();
    this.url = address;
    return this;
  }

  /** Run a command of `headgate` on this gateway's Redis. @param {string} name @param {string[]} words */
  async command(name, ...words) {
    await promisify(execFile)(COMMAND, [name, "--redis", this.redisUrl, ...words]);
  }

  /** Send an event to one session, as any Python process can. @param {string} session @param {string} topic @param {any} data */
  async send(session, topic, data) {
    const program = "import json, sys; from headgate import Clients; print(Clients(sys.argv[1]).send(sys.argv[2], sys.argv[3], json.loads(sys.argv[4])))";
    const words = ["-c", program, this.redisUrl, session, topic, JSON.stringify(data)];
    return (await promisify(execFile)(join(dirname(COMMAND), "python"), words)).stdout.trim() === "True";
  }

  /** @param {NodeJS.Signals} [signal] */
  async stop(signal = "SIGTERM") {
    const running = this.#process;
    if (!running || running.exitCode !== null || running.signalCode !== null) return;
    const ended = new Promise((resolve) => running.once("exit", resolve));
    running.kill(signal);
    const deadline = setTimeout(() => running.kill("SIGKILL"), STOP_DEADLINE_MS);
    await ended;
    clearTimeout(deadline);
  }

  /** Stop, and remove its data. */
  async remove() {
    await this.stop();
    // A private Redis with a killed gateway may be writing its last.
    await rm(this.#folder, { recursive: true, force: true, maxRetries: 20 });
  }

  /** Where its private Redis is. */
  get redisUrl() {
    return `unix://${this.#socket}`;
  }

  get #data() {
    return join(this.#folder, "data");
  }

  get #socket() {
    return join(this.#data, "redis.sock");
  }
}

/**
 * Wait for a condition, with a deadline.
 * @param {() => unknown} condition
 * @param {string} what
 */
export async function until(condition, what, deadlineMs = 30_000) {
  const end = performance.now() + deadlineMs;
  while (!condition()) {
    if (performance.now() > end) throw new Error(`not within ${deadlineMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
