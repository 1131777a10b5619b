/**
 * The dispatcher: names → handlers, with the complete Backbone.Events interface and its calling conventions.
 *
 * In: calls of `on`, `off`, … from the application, `trigger` for local events, `dispatch` for events from the wire. Out:
 * handler calls. It knows no network; a subclass learns through `handlersChanged` which names are in use. It imports neither Backbone nor Underscore and works beside them in both directions (`view.listenTo(gate, …)`,
 * `gate.listenTo(model, …)`).
 *
 * It differs from Backbone.Events on purpose in three points:
 * - a handler that throws does not stop the others; `handlerFailed` is told;
 * - names live in a Map, so `constructor`, `__proto__` or `hasOwnProperty` are names like any other;
 * - empty names left by stray spaces ("a ", " b") are skipped, where Backbone would read `off(" b")` as `off()`.
 *
 * @typedef {(this: any, ...args: any[]) => any} Callback
 * @typedef {{ [name: string]: Callback }} EventMap
 * @typedef {{ callback: Callback, context: any, ctx: any, options: any, order: number }} Handler
 * @typedef {{ on: Function, off: Function }} Listenable any Backbone.Events object or dispatcher
 */
import { matches } from "./topic.js";

/** The catch-all of `on("all", …)`. A symbol, so that a topic that is named `all` can have handlers of its own. */
const ALL = Symbol("all");

/** @typedef {string | typeof ALL} Key */

export class Dispatcher {
  /** @type {Map<Key, Handler[]>} Arrays are replaced, never spliced: a running trigger goes on with those it saw. */
  #handlers = new Map();
  /** @type {Set<Listenable>} */
  #listeningTo = new Set();
  #order = 0;

  /**
   * Bind a callback to a name, several names ("a b"), or a map of names to callbacks.
   * @param {string | EventMap} name `all` gets everything, with the name as first argument
   * @param {any} [callback] with a map: the context
   * @param {any} [context] `this` of the callback, and a key to remove it by
   * @param {any} [options] passed on to `handlersChanged`
   * @returns {this}
   */
  on(name, callback, context, options) {
    for (const [each, bound, ctx] of entries(name, callback, context)) {
      if (bound) this.addHandler(keyOf(each), bound, ctx, options);
    }
    return this;
  }

  /**
   * Remove callbacks: by name, callback and context, each of which may be left out to mean any.
   * @param {string | EventMap | null} [name]
   * @param {any} [callback]
   * @param {any} [context]
   * @returns {this}
   */
  off(name, callback, context) {
    if (!name) return this.#remove([...this.#handlers.keys()], callback, context);
    for (const [each, bound, ctx] of entries(name, callback, context)) this.#remove([keyOf(each)], bound, ctx);
    return this;
  }

  /** Backbone's old name of `on`. @type {Dispatcher["on"]} */
  bind(...args) {
    return this.on(...args);
  }

  /** Backbone's old name of `off`. @type {Dispatcher["off"]} */
  unbind(...args) {
    return this.off(...args);
  }

  /**
   * Like `on`, for one call per name.
   * @param {string | EventMap} name
   * @param {any} [callback]
   * @param {any} [context]
   * @param {any} [options]
   * @returns {this}
   */
  once(name, callback, context, options) {
    for (const [each, bound, ctx] of entries(name, callback, context)) {
      if (bound) this.on(each, onlyOnce(bound, (once) => this.off(each, once)), ctx, options);
    }
    return this;
  }

  /**
   * Listen to another object; `stopListening` undoes it.
   * @param {Listenable} other
   * @param {string | EventMap} name
   * @param {any} [callback]
   * @returns {this}
   */
  listenTo(other, name, callback) {
    if (!other) return this;
    this.#listeningTo.add(other);
    for (const [each, bound] of entries(name, callback, this)) if (bound) other.on(each, bound, this);
    return this;
  }

  /**
   * Like `listenTo`, for one call per name.
   * @param {Listenable} other
   * @param {string | EventMap} name
   * @param {any} [callback]
   * @returns {this}
   */
  listenToOnce(other, name, callback) {
    for (const [each, bound] of entries(name, callback, this)) {
      if (bound) this.listenTo(other, each, onlyOnce(bound, (once) => this.stopListening(other, each, once)));
    }
    return this;
  }

  /**
   * Stop listening to one object, or to all; to one name or callback, or all.
   * @param {Listenable | null} [other]
   * @param {string | EventMap | null} [name]
   * @param {any} [callback]
   * @returns {this}
   */
  stopListening(other, name, callback) {
    for (const each of other ? [other] : [...this.#listeningTo]) {
      if (!this.#listeningTo.has(each)) continue;
      each.off(name, callback, this);
      if (!name && !callback) this.#listeningTo.delete(each);
    }
    return this;
  }

  /**
   * Call the handlers of exactly this name (no wildcard matching, nothing is published), then those of `all`.
   * @param {string | EventMap} name
   * @param {...any} args
   * @returns {this}
   */
  trigger(name, ...args) {
    for (const [each] of entries(name)) {
      const named = this.#handlers.get(keyOf(each)) ?? [];
      const all = this.#handlers.get(ALL) ?? [];
      for (const handler of named) this.#call(handler, args, each);
      for (const handler of all) this.#call(handler, [each, ...args], each);
    }
    return this;
  }

  /**
   * Call the handlers of every pattern that matches a topic, in order of registration, each callback at most once per
   * context; then those of `all`.
   * @param {string} topic
   * @param {any} data
   * @param {(pattern: string) => any} describe makes the handlers' second argument
   * @param {(pattern: string) => boolean} [admits] whether a pattern's handlers may see it
   * @returns {number} how many handlers ran
   */
  dispatch(topic, data, describe, admits = () => true) {
    const chosen = this.#matching(topic, admits);
    const all = chosen.length ? (this.#handlers.get(ALL) ?? []) : [];
    for (const { handler, pattern } of chosen) this.#call(handler, [data, describe(pattern)], topic);
    for (const handler of all) this.#call(handler, [topic, data, describe(chosen[0].pattern)], topic);
    return chosen.length;
  }

  /**
   * The raw form of `on` for one key; a subclass uses it to reach a name that `on` reads otherwise (`all`).
   * @protected
   * @param {Key} key
   * @param {Callback} callback
   * @param {any} context
   * @param {any} [options]
   */
  addHandler(key, callback, context, options) {
    const handler = { callback, context, ctx: context || this, options, order: this.#order++ };
    const handlers = [...(this.#handlers.get(key) ?? []), handler];
    if (key !== ALL) this.handlersChanged(/** @type {string} */ (key), handlers, options);
    this.#handlers.set(key, handlers);
  }

  /**
   * The raw form of `off` for one key.
   * @protected
   * @param {Key} key
   * @param {Callback | null} callback null: every one
   */
  removeHandler(key, callback) {
    this.#remove([key], callback, null);
  }

  /**
   * Told before a handler is added, when it may throw to refuse the name, and after handlers have left.
   * @protected
   * @param {string} _name
   * @param {Handler[]} _handlers that the name has now
   * @param {any} [_added] the options of a handler that comes
   */
  handlersChanged(_name, _handlers, _added) {}

  /**
   * Told when a handler threw.
   * @protected
   * @param {unknown} error
   * @param {string} _name of the event that it was called for
   */
  handlerFailed(error, _name) {
    report(error);
  }

  /** @param {Key[]} keys @param {any} callback @param {any} context @returns {this} */
  #remove(keys, callback, context) {
    for (const key of keys) {
      const handlers = this.#handlers.get(key);
      if (!handlers) continue;
      const left = handlers.filter((h) => !isCallback(callback, h.callback) || (context && context !== h.context));
      if (left.length === handlers.length) continue;
      if (left.length) this.#handlers.set(key, left);
      else this.#handlers.delete(key);
      if (key !== ALL) this.handlersChanged(/** @type {string} */ (key), left);
    }
    return this;
  }

  /** @param {string} topic @param {(pattern: string) => boolean} admits */
  #matching(topic, admits) {
    /** @type {{ handler: Handler, pattern: string }[]} */
    const found = [];
    for (const [key, handlers] of this.#handlers) {
      // Lifecycle names have a colon, which no topic has, so they never match.
      if (typeof key !== "string" || !matches(key, topic) || !admits(key)) continue;
      for (const handler of handlers) found.push({ handler, pattern: key });
    }
    found.sort((a, b) => a.handler.order - b.handler.order);
    /** @type {Map<any, Set<any>>} */
    const seen = new Map();
    return found.filter(({ handler }) => {
      const callback = original(handler.callback);
      const contexts = seen.get(callback) ?? new Set();
      seen.set(callback, contexts);
      return !contexts.has(handler.ctx) && contexts.add(handler.ctx);
    });
  }

  /** @param {Handler} handler @param {any[]} args @param {string} name */
  #call(handler, args, name) {
    try {
      handler.callback.apply(handler.ctx, args);
    } catch (error) {
      this.handlerFailed(error, name);
    }
  }
}

/**
 * Report an error of the application's the way the browser reports an uncaught one, without stopping anything.
 * @param {unknown} error
 */
export function report(error) {
  if (typeof reportError === "function") reportError(error);
  else console.error(error);
}

/**
 * Yield [name, callback, context] for a name, names separated by spaces, or a map, by Backbone's rules.
 * @param {string | EventMap} name
 * @param {any} [callback]
 * @param {any} [context]
 * @returns {[string, any, any][]}
 */
function entries(name, callback, context) {
  if (name && typeof name === "object") {
    const ctx = context === undefined ? callback : context;
    return Object.keys(name).flatMap((key) => entries(key, name[key], ctx));
  }
  const names = typeof name === "string" && /\s/.test(name) ? name.split(/\s+/).filter(Boolean) : [name];
  return names.map((each) => [each, callback, context]);
}

/** @param {string} name @returns {Key} */
function keyOf(name) {
  return name === "all" ? ALL : name;
}

/** @param {Callback} callback @param {(once: Callback) => void} leave */
function onlyOnce(callback, leave) {
  let called = false;
  /** @type {Callback & { _callback?: Callback }} */
  const once = function (...args) {
    if (called) return;
    called = true;
    leave(once);
    return callback.apply(this, args);
  };
  // Backbone's own name for it: `off` finds a `once` by the callback that was given.
  once._callback = callback;
  return once;
}

/** @param {any} callback */
function original(callback) {
  return callback._callback ?? callback;
}

/** @param {any} wanted any when empty @param {any} callback */
function isCallback(wanted, callback) {
  return !wanted || wanted === callback || wanted === callback._callback;
}
