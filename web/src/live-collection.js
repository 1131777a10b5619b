/**
 * LiveCollection: a Backbone collection that follows the events of its models.
 *
 * In: events of `<topic>.*.*` (or of `pattern`, read by `mapping`), answers of the server. Out: the usual Backbone events.
 * Rules, beside those of LiveModel:
 * - events that arrive while a fetch is under way are applied at once, and again after its answer, which may be older;
 * - while a `create` is under way, a model that nobody knows waits for its answer: it may be the very one;
 * - it fetches again only when events were lost for good.
 *
 * @import { Gate, HeadgateEvent } from "./gate.js"
 * @import { Change, LiveOptions } from "./live.js"
 * @typedef {{ change: Change, event: HeadgateEvent }} Arrival
 * @typedef {{ fetches: number, creates: number, arrivals: Arrival[], overflown: boolean, resync?: Resync }} Following
 */
import Backbone from "backbone";
import { extend } from "./extend.js";
import { byConvention, isStale, Resync, whenDone, whenLost } from "./live.js";
import { LiveModel } from "./live-model.js";

/** Events that are kept for after an answer; beyond that another fetch is asked for. */
const MAX_ARRIVALS = 10_000;

/** @type {WeakMap<object, Following>} */
const followings = new WeakMap();

export class LiveCollection extends Backbone.Collection {
  static extend = extend;

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
   */
  follow(gate, options = {}) {
    const { topic = /** @type {any} */ (this).topic, mapping = byConvention(topic), pattern = `${topic}.*.*` } = options;
    this.unfollow();
    if (options.versionAttribute) Object.assign(this, { versionAttribute: options.versionAttribute });
    const resync = new Resync(() => whenDone((callbacks) => this.fetch(callbacks)), options.resyncSpreadMs);
    following(this).resync = resync;
    this.listenTo(gate, pattern, (/** @type {any} */ _data, /** @type {HeadgateEvent} */ event) => {
      const change = mapping(event);
      if (change && change.op !== "ignore") this.applyLive(change, event);
    });
    whenLost(this, gate, () => resync.ask());
    Object.assign(following(this), { gate });
    return this;
  }

  /** Stop following. */
  unfollow() {
    const { resync, gate } = /** @type {Following & { gate?: Gate }} */ (following(this));
    resync?.cancel();
    if (gate) this.stopListening(gate);
    followings.delete(this);
  }

  /**
   * Take a change that an event brought.
   * @param {Change} change
   * @param {HeadgateEvent} event
   */
  applyLive(change, event) {
    const state = following(this);
    const unknown = change.op === "upsert" && !find(this, change);
    if (state.fetches || (state.creates && unknown)) keep(state, { change, event });
    if (!(state.creates && unknown)) apply(this, change, event);
  }

  /** Backbone's index of models, in which `__proto__` and `constructor` are ids like any other. @protected */
  _reset() {
    /** @type {any} */ (Backbone.Collection.prototype)._reset.call(this);
    Object.assign(this, { _byId: Object.create(null) });
  }

  /** @param {any} [options] */
  fetch(options) {
    const state = following(this);
    state.fetches++;
    return super.fetch(settled(options, () => state.fetches--, () => this.#caughtUp(state)));
  }

  /** @param {any} attributes @param {any} [options] @returns {any} */
  create(attributes, options) {
    const state = following(this);
    state.creates++;
    const how = settled(options, () => state.creates--, () => this.#caughtUp(state));
    const model = super.create(attributes, how);
    // Invalid: nothing was sent, nobody will answer.
    if (!model || model.validationError) how.settle();
    return model;
  }

  /** @param {Following} state */
  #caughtUp(state) {
    if (state.fetches || state.creates) return;
    for (const { change, event } of state.arrivals.splice(0)) apply(this, change, event);
    if (state.overflown) state.resync?.ask();
    state.overflown = false;
  }
}

// On the prototype, as Backbone's own settings are: `extend` overrides them, and they are there during `super()`.
Object.assign(LiveCollection.prototype, { model: LiveModel, versionAttribute: "version" });

/** @param {object} collection @returns {Following} */
function following(collection) {
  const found = followings.get(collection) ?? { fetches: 0, creates: 0, arrivals: [], overflown: false };
  followings.set(collection, found);
  return found;
}

/** @param {Following} state @param {Arrival} arrival */
function keep(state, arrival) {
  if (state.arrivals.length < MAX_ARRIVALS) state.arrivals.push(arrival);
  else state.overflown = true;
}

/** @param {any} collection @param {Change} change @returns {any} */
function find(collection, { id, attributes }) {
  return collection.get(id) ?? collection.get(attributes?.[idKey(collection)]);
}

/** @param {any} collection @returns {string} */
function idKey(collection) {
  return collection.model.prototype?.idAttribute ?? "id";
}

/** @param {any} collection @param {Change} change @param {HeadgateEvent} event */
function apply(collection, change, event) {
  const { op, id, attributes = {} } = change;
  const options = { live: true, event };
  const model = find(collection, change);
  if (!model) {
    if (op === "upsert") collection.add({ [idKey(collection)]: id, ...attributes }, options);
  } else if (op === "remove") {
    if (model.removeLive) model.removeLive(change.attributes, event);
    else if (!isStale(attributes, model.attributes, collection.versionAttribute, false)) collection.remove(model, options);
  } else if (model.setLive) model.setLive(attributes, event);
  else if (!isStale(attributes, model.attributes, collection.versionAttribute)) model.set(attributes, options);
}

/**
 * Return Backbone options that call `first` and `then`, once, when the request has ended, `then` after Backbone is done.
 * @param {any} options @param {() => void} first @param {() => void} then
 * @returns {any}
 */
function settled(options, first, then) {
  const { success, error } = options ?? {};
  let ended = false;
  const settle = () => {
    if (ended) return;
    ended = true;
    first();
    then();
  };
  /** @param {((...args: any[]) => void) | undefined} callback @returns {(...args: any[]) => void} */
  const around = (callback) => (...args) => {
    settle();
    callback?.apply(options?.context, args);
  };
  return { ...options, settle, success: around(success), error: around(error) };
}
