/**
 * NotificationList: a bounded Backbone collection of notifications, newest first, with read state: the model of a
 * notification centre.
 *
 * In: events of the patterns that the user has chosen, and which of them the page has shown. Out: the usual Backbone events,
 * `unread` with the count when it changes, and requests that tell the gateway which were shown. A notification is {id, topic, data, time,
 * pattern, read}. An event with an id is listed once. `untold` {count, error?} says how many the gateway will not hear of.
 *
 * @import { Gate, HeadgateEvent } from "../gate.js"
 */
import Backbone from "backbone";
import { checkRule, COUNT } from "../language/options.js";
import { checkPattern } from "../index.js";
import { AnyIdCollection, CID_PREFIX } from "./any-id-collection.js";
import { createSeen } from "./seen.js";

const DEFAULT_LIMIT = 100;

/** Those whose constructor has begun: `initialize` may choose. @type {WeakMap<object, { gate: Gate, limit: number, accepts: (data: any, event: HeadgateEvent) => boolean, wasRead: (event: HeadgateEvent) => boolean, chosen: Set<string>, unread: number, shown: WeakSet<object>, seen: ReturnType<typeof createSeen> }>} */
const lists = new WeakMap();

export class NotificationList extends AnyIdCollection {
  /**
   * @param {any} models
   * @param {{ gate: Gate, patterns?: string[], limit?: number, accepts?: (data: any, event: HeadgateEvent) => boolean, [option: string]: any }} options
   *   `accepts` leaves events out for which it returns false, such as those that the user has caused
   */
  constructor(models, options) {
    super(models, options);
    const { gate, limit = DEFAULT_LIMIT, accepts = () => true, wasRead = () => false } = options;
    checkRule("NotificationList: limit", COUNT, limit);
    const seen = createSeen(gate, (count, error) => this.trigger("untold", { count, error }));
    const { chosen } = Object.assign(listOf(this), { gate, limit, accepts, wasRead, unread: this.unread, seen });
    this.on("add remove reset change:read", this.#recount, this);
    this.on("change:read", (/** @type {any} */ notification) => notification.get("read") && this.shown(notification));
    this.listenTo(gate, "connection:up", seen.again);
    for (const pattern of chosen) this.listenTo(gate, pattern, this.#take);
    for (const pattern of options.patterns ?? []) this.choose(pattern);
  }

  /** How many are not read. @returns {number} */
  get unread() {
    return this.filter((notification) => !notification.get("read")).length;
  }

  /** The patterns that the user has chosen. @returns {string[]} */
  get chosen() {
    return [...listOf(this).chosen];
  }

  /**
   * Be notified of a pattern: subscribes.
   * @param {string} pattern
   * @returns {this}
   * @throws {HeadgateError} `invalid_pattern`
   */
  choose(pattern) {
    const { gate, chosen } = listOf(this);
    if (chosen.has(checkPattern(pattern))) return this;
    if (gate) this.listenTo(gate, pattern, this.#take);
    chosen.add(pattern);
    return this;
  }

  /**
   * Be notified of it no more: unsubscribes. Listed notifications stay.
   * @param {string} pattern
   * @returns {this}
   */
  dismiss(pattern) {
    const { gate, chosen } = listOf(this);
    if (chosen.delete(pattern) && gate) this.stopListening(/** @type {any} */ (gate), pattern, this.#take);
    return this;
  }

  /**
   * Say that notifications have been put before the user: consumers need not mail them. A notification that is read counts as shown.
   * @param {...any} notifications or their ids
   */
  shown(...notifications) {
    const { shown, seen } = listOf(this);
    for (const each of notifications) {
      const notification = this.get(each);
      if (!notification || shown.has(notification)) continue;
      shown.add(notification);
      seen.add(notification.id);
    }
  }

  /** Mark one notification as read. @param {any} id */
  read(id) {
    this.get(id)?.set("read", true);
  }

  /** Mark all as read. */
  readAll() {
    this.invoke("set", "read", true);
  }

  /** @param {any} data @param {HeadgateEvent} event */
  #take(data, event) {
    if (!listOf(this).accepts(data, event)) return;
    const { id, topic, time, pattern } = event;
    const read = listOf(this).wasRead(event);
    const attributes = { ...(id === null ? {} : { id }), topic, data, time, pattern, read };
    const [notification] = [this.unshift(/** @type {any} */ (attributes))].flat();
    if (read && notification) listOf(this).shown.add(notification);
    while (this.length > listOf(this).limit) this.pop();
  }

  #recount() {
    const list = listOf(this);
    const { unread } = this;
    if (unread === list.unread) return;
    list.unread = unread;
    this.trigger("unread", unread);
  }
}

// On the prototype, as Backbone's own settings are: `extend` overrides it, and it is there during `super()`.
Object.assign(NotificationList.prototype, { model: Backbone.Model.extend({ cidPrefix: CID_PREFIX }) });

/** @param {object} list */
function listOf(list) {
  const known = lists.get(list) ?? /** @type {any} */ ({ chosen: new Set(), shown: new WeakSet() });
  lists.set(list, known);
  return known;
}
