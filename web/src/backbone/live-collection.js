/**
 * LiveCollection: a Backbone collection that follows the events of its models.
 *
 * In: events of `<topic>.*.*` (or of `pattern`, read by `mapping`), answers of the server. Out: the usual Backbone events. Rules, in addition to those of
 * LiveModel:
 * - while a `create` is under way, an event of an unknown model waits for the answer, because it may belong to the new model;
 * - models that were fetched or given before the acknowledgement of the subscription are then fetched again, with the same options, and after that only when
 *   events were lost (load.js).
 *
 * @import { Change, LiveOptions } from "../live/rules.js"
 * @import { HeadgateEvent } from "../gate.js"
 * @typedef {{ follow: Follow, creates: number }} Record
 */
import { checkLive, Follow } from "../live/follow.js";
import { byConvention, isStale, sound } from "../live/rules.js";
import { checkPattern, Gate } from "../index.js";
import { AnyIdCollection } from "./any-id-collection.js";
import { LiveModel } from "./live-model.js";

export { LiveModel };

// Not in fields, because Backbone's constructor calls `initialize`, which may fetch, before the fields exist.
/** @type {WeakMap<object, Record>} */
const records = new WeakMap();

export class LiveCollection extends AnyIdCollection {
  /** @param {any} [models] @param {any} [options] Backbone's, and LiveOptions with `gate` to follow at once */
  constructor(models, options) {
    super(models, options);
    if (options?.gate) this.follow(options.gate, options);
  }

  /**
   * Follow the events of a topic.
   * @param {Gate} gate
   * @param {LiveOptions & { pattern?: string }} [options] `topic` default: the `topic` property
   * @returns {this}
   * @throws {HeadgateError} `invalid_pattern`: there is no topic, or it is invalid
   */
  follow(gate, options = {}) {
    checkLive(gate, options);
    const { topic = /** @type {any} */ (this).topic } = options;
    const mapping = options.mapping ?? byConvention(checkPattern(topic));
    const pattern = checkPattern(options.pattern ?? `${checkPattern(topic)}.*.*`);
    if (options.versionAttribute) Object.assign(this, { versionAttribute: options.versionAttribute });
    const record = recordOf(this);
    const take = (/** @type {HeadgateEvent} */ event) => {
      const change = mapping(event);
      if (!change || change.op === "ignore") return;
      // The load applies it again after the answer.
      const isAwaited = record.creates > 0 && change.op === "upsert" && !find(this, change);
      if (!isAwaited) this.applyLive(change, event);
    };
    record.follow.start(gate, pattern, take, options);
    return this;
  }

  /** Stop following. */
  unfollow() {
    recordOf(this).follow.stop();
  }

  /**
   * Apply a change that an event brought.
   * @param {Change} change
   * @param {HeadgateEvent} event
   */
  applyLive(change, event) {
    Gate._check("applyLive: change", "object", change);
    const options = /** @type {any} */ ({ live: true, event });
    const { op, id } = change;
    const attributes = sound(change.attributes ?? {}, idKey(this));
    const { versionAttribute } = /** @type {any} */ (this);
    const model = find(this, change);
    if (!model) {
      if (op === "upsert") this.add({ [idKey(this)]: id, ...attributes }, options);
    } else if (op === "remove") {
      if (model.removeLive) model.removeLive(attributes, event);
      else if (!isStale(attributes, model.attributes, versionAttribute, false)) this.remove(model, options);
    } else if (model.setLive) model.setLive(attributes, event);
    else if (!isStale(attributes, model.attributes, versionAttribute)) model.set(attributes, options);
  }

  /** As Backbone's. @param {any} [options] @returns {any} */
  fetch(options) {
    return recordOf(this).follow.fetch(options, (how) => super.fetch(how), options?.remove === false && !options.reset);
  }

  /** As Backbone's. @param {any} attributes @param {any} [options] @returns {any} */
  create(attributes, options) {
    const record = recordOf(this);
    record.creates++;
    const make = (/** @type {any} */ how) => {
      const model = super.create(attributes, how);
      // The model is invalid. Nothing was sent, and no answer comes.
      if (!model || model.validationError) how.finish();
      return model;
    };
    return record.follow.request(options, make, true, () => record.creates--);
  }
}

// On the prototype, like Backbone's own settings, so that `extend` overrides them and they exist during `super()`.
Object.assign(LiveCollection.prototype, { model: LiveModel, versionAttribute: "version" });

/** @param {any} collection @returns {Record} */
function recordOf(collection) {
  const known = records.get(collection);
  if (known) return known;
  const record = { follow: new Follow(collection, () => collection.length > 0), creates: 0 };
  records.set(collection, record);
  return record;
}

/** @param {any} collection @param {Change} change @returns {any} */
function find(collection, { id, attributes = {} }) {
  return collection.get(id) ?? collection.get(sound(attributes, idKey(collection))[idKey(collection)]);
}

/** @param {any} collection @returns {string} */
function idKey(collection) {
  return collection.model.prototype?.idAttribute ?? "id";
}
