/**
 * LiveModel: a Backbone model that follows the events of its topic.
 *
 * In: events of `<topic>.<id>.*` (or what `mapping` makes of them), answers of the server, edits of the user. Out: the usual
 * Backbone events, with `{live: true, event}` as options where an event is the cause. Rules:
 * - attributes whose version is not above the model's are stale and change nothing, whether an event or an answer brings
 *   them;
 * - while a save is under way, only the user changes what is being saved, so an optimistic edit does not flicker
 *   (pending.js says what it is afterwards); a save that fails puts it back;
 * - it fetches again only when events were lost for good.
 *
 * A LiveModel in a LiveCollection is fed by the collection and subscribes to nothing.
 *
 * @import { Gate, HeadgateEvent } from "./gate.js"
 * @import { LiveOptions } from "./live.js"
 */
import Backbone from "backbone";
import { extend } from "./extend.js";
import { byConvention, isStale, Resync, whenDone, whenLost } from "./live.js";
import { PendingEdits } from "./pending.js";

// Beside the models, not in fields: Backbone calls `set` in its constructor, before a subclass has fields.
/** @type {WeakMap<object, PendingEdits>} */
const edits = new WeakMap();
/** @type {WeakMap<object, () => void>} */
const unfollows = new WeakMap();
/** @type {WeakMap<object, object>} what a save has set already, and Backbone is about to set again as if from the server */
const sending = new WeakMap();

export class LiveModel extends Backbone.Model {
  static extend = extend;

  /** @param {any} [attributes] @param {any} [options] Backbone's, and LiveOptions with `gate` to follow at once */
  constructor(attributes, options) {
    super(attributes, options);
    // A collection hands its own options down; it also hands down its events.
    if (options?.gate && !options.collection) this.follow(options.gate, options);
  }

  /**
   * Follow the events of a topic. The model must have its id.
   * @param {Gate} gate
   * @param {LiveOptions} [options] `topic` default: the `topic` property
   * @returns {this}
   */
  follow(gate, { topic = /** @type {any} */ (this).topic, mapping = byConvention(topic), versionAttribute, resyncSpreadMs } = {}) {
    this.unfollow();
    if (versionAttribute) Object.assign(this, { versionAttribute });
    const resync = new Resync(() => whenDone((callbacks) => this.fetch(callbacks)), resyncSpreadMs);
    this.listenTo(gate, `${topic}.${this.id}.*`, (/** @type {any} */ _data, /** @type {HeadgateEvent} */ event) => {
      const { op = "ignore", id, attributes } = mapping(event) ?? {};
      if (String(id) !== String(this.id)) return;
      if (op === "remove") this.removeLive(attributes, event);
      else if (op !== "ignore") this.setLive(attributes ?? {}, event);
    });
    whenLost(this, gate, () => resync.ask());
    unfollows.set(this, () => {
      resync.cancel();
      this.stopListening(gate);
    });
    this.once("destroy", this.unfollow, this);
    return this;
  }

  /** Stop following. */
  unfollow() {
    unfollows.get(this)?.();
    unfollows.delete(this);
    this.off("destroy", this.unfollow, this);
  }

  /**
   * Take attributes that an event brought.
   * @param {Record<string, any>} attributes
   * @param {HeadgateEvent} event
   * @returns {boolean} false: they were stale
   */
  setLive(attributes, event) {
    if (isStale(attributes, this.attributes, versionKey(this))) return false;
    this.set(edits.get(this)?.sift(attributes, "event") ?? attributes, /** @type {any} */ ({ live: true, event }));
    return true;
  }

  /**
   * The server no longer has it: views see `destroy`, collections let go of it.
   * @param {Record<string, any> | undefined} attributes
   * @param {HeadgateEvent} event
   * @returns {boolean} false: it was stale
   */
  removeLive(attributes, event) {
    if (isStale(attributes, this.attributes, versionKey(this), false)) return false;
    this.trigger("destroy", this, this.collection, { live: true, event });
    return true;
  }

  /**
   * As Backbone's, except that an answer of the server (`parse`) changes neither a newer model nor what is being saved.
   * @param {any} key @param {any} [value] @param {any} [options]
   * @returns {any}
   */
  set(key, value, options) {
    if (!value?.parse || key === null || typeof key !== "object") return super.set(key, value, options);
    if (key === sending.get(this)) return this;
    const attributes = key instanceof Backbone.Model ? key.attributes : key;
    if (isStale(attributes, this.attributes, versionKey(this), false)) return this;
    return super.set(edits.get(this)?.sift(attributes, "answer") ?? attributes, value);
  }

  /**
   * As Backbone's; what is being saved is the user's until the server has answered. Without attributes everything but id
   * and version is.
   * @param {any} [key] @param {any} [value] @param {any} [options]
   * @returns {any}
   */
  save(key, value, options) {
    const isMap = key === null || key === undefined || typeof key === "object";
    const attributes = isMap ? key : { [key]: value };
    const how = { ...(isMap ? value : options) };
    const before = { ...this.attributes };
    // Backbone would do it itself, but as if the server had said so (`parse`).
    if (attributes && !how.wait && !super.set(attributes, { validate: true, ...how })) return false;
    const { [this.idAttribute]: _id, [versionKey(this)]: _version, ...sent } = attributes ?? this.attributes;
    if (!edits.has(this)) edits.set(this, new PendingEdits());
    const end = /** @type {PendingEdits} */ (edits.get(this)).begin(sent, before);
    const ended = (/** @type {boolean} */ ok) => this.set(end(ok), /** @type {any} */ ({ live: true }));
    const { success, error } = how;
    how.success = (/** @type {any[]} */ ...args) => {
      ended(true);
      success?.apply(how.context, args);
    };
    how.error = (/** @type {any[]} */ ...args) => {
      ended(false);
      error?.apply(how.context, args);
    };
    if (attributes && !how.wait) sending.set(this, attributes);
    const request = /** @type {any} */ (super.save(attributes, how));
    if (request === false) ended(false);
    return request;
  }
}

/** The model's own `versionAttribute`, else its collection's. @param {any} model @returns {string} */
function versionKey(model) {
  return model.versionAttribute ?? model.collection?.versionAttribute ?? "version";
}
