/**
 * LiveModel: a Backbone model that follows the events of its topic.
 *
 * In: events of `<topic>.<id>.*` (or changes that `mapping` makes from them), answers of the server, edits of the user. Out: the usual Backbone events, with
 * `{live: true, event}` as options if an event is the cause. Rules:
 * - attributes whose version is not above the model's are stale and change nothing, whether from an event or an answer, except the fetch after the log has
 *   lost its end, which counts whatever its version is (follow.js);
 * - while a save is under way, only the user changes its attributes, so an optimistic edit does not flicker (pending-edits.js decides which value holds
 *   afterwards), and a failed save restores them;
 * - a model that was fetched or given before the acknowledgement of the subscription is then fetched again, and after that only when events were lost
 *   (load.js);
 * - without an id it waits, and when the id comes or changes, its subscription changes too.
 *
 * A LiveModel in a LiveCollection gets its events from the collection and subscribes to nothing.
 *
 * @import { Change, LiveOptions, Mapping } from "../live/rules.js"
 * @import { Gate, HeadgateEvent } from "../gate.js"
 * @typedef {{ gate: Gate, topic: string, mapping: Mapping, options: LiveOptions, id?: string }} Wish `id`: the followed one
 */
import Backbone from "backbone";
import { report } from "../base/report.js";
import { checkLive, Follow } from "../live/follow.js";
import { byConvention, isStale, sound, whenEnded } from "../live/rules.js";
import { checkPattern, Gate as BaseGate, HeadgateError } from "../index.js";
import { CID_PREFIX } from "./any-id-collection.js";
import { extend } from "./extend.js";
import { PendingEdits } from "./pending-edits.js";

// Not in fields, because Backbone calls `set` in its constructor, before a subclass has fields.
/** @type {WeakMap<object, PendingEdits>} */
const edits = new WeakMap();
/** @type {WeakMap<object, Follow>} */
const follows = new WeakMap();
/** @type {WeakMap<object, Wish>} */
const wishes = new WeakMap();
/** @type {WeakMap<object, object>} the attributes that a save has already set, and that Backbone is about to set again as an answer of the server */
const sending = new WeakMap();

export class LiveModel extends Backbone.Model {
  static extend = extend;

  /** @param {any} [attributes] @param {any} [options] Backbone's, and LiveOptions with `gate` to follow at once */
  constructor(attributes, options) {
    super(attributes, options);
    // A collection passes its options to its models, and also its events.
    if (options?.gate && !options.collection) this.follow(options.gate, options);
  }

  /**
   * Follow the events of a topic, as soon as the model has an id.
   * @param {Gate} gate
   * @param {LiveOptions} [options] `topic` default: the `topic` property
   * @returns {this}
   * @throws {HeadgateError} `invalid_pattern`: there is no topic, or the id is not one word of a topic
   */
  follow(gate, options = {}) {
    checkLive(gate, options);
    const topic = checkPattern(options.topic ?? /** @type {any} */ (this).topic);
    if (!this.isNew()) patternOf(topic, this.id);
    this.unfollow();
    if (options.versionAttribute) Object.assign(this, { versionAttribute: options.versionAttribute });
    wishes.set(this, { gate, topic, mapping: options.mapping ?? byConvention(topic), options });
    this.once("destroy", this.unfollow, this);
    move(this);
    return this;
  }

  /** Stop following. */
  unfollow() {
    wishes.delete(this);
    follows.get(this)?.stop();
    this.off("destroy", this.unfollow, this);
  }

  /** As Backbone's. @param {any} [options] @returns {any} */
  fetch(options) {
    return followOf(this).fetch(options, (how) => super.fetch(how));
  }

  /**
   * Set attributes that an event brought.
   * @param {Record<string, any>} attributes
   * @param {HeadgateEvent} event
   * @returns {boolean} false: they were stale
   */
  setLive(attributes, event) {
    BaseGate._check("setLive: attributes", "object", attributes);
    attributes = sound(attributes, this.idAttribute);
    if (isStale(attributes, this.attributes, versionKey(this))) return false;
    this.set(edits.get(this)?.sift(attributes, "event") ?? attributes, /** @type {any} */ ({ live: true, event }));
    return true;
  }

  /**
   * The server no longer has it. Trigger `destroy`, by which collections remove it.
   * @param {Record<string, any> | undefined} attributes
   * @param {HeadgateEvent} event
   * @returns {boolean} false: the event was stale
   */
  removeLive(attributes, event) {
    if (isStale(attributes, this.attributes, versionKey(this), false)) return false;
    this.trigger("destroy", this, this.collection, { live: true, event });
    return true;
  }

  /**
   * As Backbone's `set`, except that an answer of the server (`parse`) changes neither a newer model nor attributes in a save.
   * @param {any} key @param {any} [value] @param {any} [options]
   * @returns {any}
   */
  set(key, value, options) {
    const set = arriving(this, key, value, options);
    const done = set ? super.set(...set) : this;
    move(this);
    return done;
  }

  /**
   * As Backbone's `save`. Attributes in a save belong to the user until the server has answered. Without the argument these are all except id and version.
   * @param {any} [key] @param {any} [value] @param {any} [options]
   * @returns {any}
   */
  save(key, value, options) {
    const isMap = key === null || key === undefined || typeof key === "object";
    const attributes = isMap ? key : { [key]: value };
    const given = { ...(isMap ? value : options) };
    const before = { ...this.attributes };
    // Backbone would set them itself, but as an answer of the server (`parse`).
    if (attributes && !given.wait && !super.set(attributes, { validate: true, ...given })) return false;
    move(this);
    const { [this.idAttribute]: _id, [versionKey(this)]: _version, ...sent } = attributes ?? this.attributes;
    if (!edits.has(this)) edits.set(this, new PendingEdits());
    const end = /** @type {PendingEdits} */ (edits.get(this)).begin(sent, before);
    const how = whenEnded(given, (ok) => this.set(end(Boolean(ok)), /** @type {any} */ ({ live: true })));
    if (attributes && !given.wait) sending.set(this, attributes);
    /** @type {any} */
    let request = false;
    try {
      request = super.save(attributes, how);
    } finally {
      // Nothing was sent: the attributes are invalid, or Backbone has thrown, such as for a missing URL.
      if (request === false) how.finish();
    }
    return request;
  }
}

// On the prototype, like Backbone's own settings, so that it exists during `super()`.
Object.assign(LiveModel.prototype, { cidPrefix: CID_PREFIX });

/**
 * Return the arguments for Backbone's `set`; undefined: an answer has nothing new.
 * @param {any} model @param {any} key @param {any} value @param {any} options
 * @returns {[any, any, any?] | undefined}
 */
function arriving(model, key, value, options) {
  if (!value?.parse || key === null || typeof key !== "object") return [key, value, options];
  if (key === sending.get(model)) return undefined;
  const attributes = key instanceof Backbone.Model ? key.attributes : key;
  if (!value.rolledBack && isStale(attributes, model.attributes, versionKey(model), false)) return undefined;
  return [edits.get(model)?.sift(attributes, "answer") ?? attributes, value];
}

/** @param {any} model @returns {Follow} */
function followOf(model) {
  const known = follows.get(model);
  if (known) return known;
  const follow = new Follow(model, () => Object.keys(model.attributes).some((name) => name !== model.idAttribute));
  follows.set(model, follow);
  return follow;
}

/** Follow the present id of the model. @param {any} model */
function move(model) {
  const wish = wishes.get(model);
  if (!wish || wish.id === textOf(model.id)) return;
  const follow = followOf(model);
  follow.stop();
  if (wish.id !== undefined) follow.forget();
  wish.id = textOf(model.id);
  if (wish.id === undefined) return;
  const { gate, topic, mapping, options } = wish;
  try {
    const pattern = patternOf(topic, model.id);
    follow.start(gate, pattern, (event) => take(model, mapping(event) ?? {}, event), options);
  } catch (error) {
    // Not thrown, because the caller only sets attributes, and may be Backbone with an answer.
    report(error);
    gate.trigger("delivery:error", { error });
  }
}

/** @param {LiveModel} model @param {Partial<Change>} change @param {HeadgateEvent} event */
function take(model, { op = "ignore", id, attributes }, event) {
  if (textOf(id) !== textOf(model.id)) return;
  if (op === "remove") model.removeLive(attributes, event);
  else if (op !== "ignore") model.setLive(attributes ?? {}, event);
}

/** @param {string} topic @param {any} id @returns {string} */
function patternOf(topic, id) {
  const pattern = `${topic}.${textOf(id)}.*`;
  if (/^[\w-]+$/.test(/** @type {string} */ (textOf(id)))) return checkPattern(pattern);
  throw new HeadgateError("invalid_pattern", { pattern: pattern.slice(0, 80), reason: "the id is not one word of A-Za-z0-9_-" });
}

/** Return an id as written in a topic; undefined: there is none. @param {any} id */
function textOf(id) {
  if (id === null || id === undefined) return undefined;
  return typeof id === "string" || typeof id === "number" ? String(id) : `(${typeof id})`;
}

/** The model's own `versionAttribute`, else its collection's. @param {any} model @returns {string} */
function versionKey(model) {
  return model.versionAttribute ?? model.collection?.versionAttribute ?? "version";
}
