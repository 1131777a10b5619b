/**
 * A room: the present members of a topic. All rooms of a gate for a topic show the same members (members.js), and the page leaves the topic with the last room.
 * Each room has its own handlers and its own `close`, so that one part of a page cannot end the presence of another.
 *
 * @import { Member, PresenceSnapshot } from "./members.js"
 * @typedef {{ meta?: any, enter?: boolean }} PresenceOptions `enter: false` only watches
 */
import { checkPayload, checkTopic, Dispatcher, Gate } from "../index.js";
import { Members } from "./members.js";

/** @type {import("../language/options.js").Table} */
const OPTIONS = { enter: ["boolean"], meta: [""] };

/** @type {WeakMap<Gate, Map<string, Members>>} */
const topics = new WeakMap();

/**
 * Enter a topic, or only watch it, until this room is closed.
 * @param {Gate} gate
 * @param {string} topic
 * @param {PresenceOptions} [options]
 * @returns {Room}
 * @throws {HeadgateError} `invalid_topic`; for `meta`, as `update`
 */
export function presence(gate, topic, options = {}) {
  checkTopic(topic);
  const { enter, meta } = Gate._optionsOf(gate, "presence", OPTIONS, options);
  const plainMeta = checkMeta(gate, meta);
  const ofGate = topics.get(gate) ?? new Map();
  topics.set(gate, ofGate);
  const all = ofGate.get(topic) ?? new Members(gate, topic, () => ofGate.delete(topic));
  ofGate.set(topic, all);
  all.join(plainMeta, enter);
  return new Room(gate, topic, all);
}

export class Room extends Dispatcher {
  #gate;
  #all;
  /** The last snapshot, once the room is closed. @type {PresenceSnapshot | undefined} */
  #last;
  /** Only `close` ends its handlers (dispatcher.js). */
  #listener = Object.assign(new Dispatcher(), { _isPart: true });

  /** @param {Gate} gate @param {string} topic @param {Members} all */
  constructor(gate, topic, all) {
    super();
    this.#gate = gate;
    this.topic = topic;
    this.#all = all;
    // A room that an earlier handler of the same event has closed does not get the event.
    this.#listener.listenTo(all, "all", (name, ...args) => this.#last ?? this.#tell(name, ...args));
  }

  get status() {
    return (this.#last ?? this.#all).status;
  }

  /** The gateway's latest refusal. */
  get error() {
    return (this.#last ?? this.#all).error;
  }

  /** The members, sorted by name. */
  get members() {
    return this.getSnapshot().members;
  }

  /** @param {string} user @returns {Member | undefined} */
  get(user) {
    return this.#all.get(user);
  }

  /**
   * Replace this user's `meta`, and enter the topic if the room has only watched it.
   * @param {any} meta JSON
   * @throws {HeadgateError} `not_serializable`, or `payload_too_large` (once the gateway has sent its limits); the room stays unchanged
   */
  update(meta) {
    const plainMeta = checkMeta(this.#gate, meta);
    if (!this.#last) this.#all.update(plainMeta);
  }

  /** Close this room. The page leaves the topic with the last room. */
  close() {
    if (this.#last) return;
    this.#last = Object.freeze({ ...this.#all.snapshot, status: "closed" });
    this.#listener.stopListening();
    this.#all.leave();
    this.#tell("change", this.#last);
  }

  /** @param {() => void} call @returns {() => void} */
  subscribe = (call) => {
    Gate._check("subscribe: listener", "function", call);
    // Not bound by `on`, because the application may remove all those handlers at once. A separate function, so that a listener passed twice ends each
    // by itself.
    const own = () => call();
    this.#listener.on("change", own);
    return () => void this.#listener.off("change", own);
  };

  /** @returns {PresenceSnapshot} */
  getSnapshot = () => this.#last ?? this.#all.snapshot;

  getServerSnapshot = this.getSnapshot;

  /** @param {string} name @param {...any} args */
  #tell(name, ...args) {
    this.trigger(name, ...args);
    if (name === "change") this.#listener.trigger(name);
  }
}

/** @param {Gate} gate @param {any} meta */
const checkMeta = (gate, meta) => (meta === undefined ? meta : checkPayload(meta, gate.state.limits.maxPresenceMetaBytes));
