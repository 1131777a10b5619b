/**
 * The dispatcher: names → handlers, with the complete Backbone.Events interface and its calling conventions.
 *
 * In: calls of `on`, `off`, … from the application, `trigger` for local events, `dispatch` for events from the wire. Out:
 * handler calls. It knows no network; a subclass learns through `_handlersChanged` which names are in use. It imports neither Backbone nor Underscore and works beside them in both directions (`view.listenTo(gate, …)`,
 * `gate.listenTo(model, …)`).
 *
 * It differs from Backbone.Events on purpose in three points:
 * - a handler that throws does not stop the others; `_handlerFailed` is told;
 * - names live in a Map, so `constructor`, `__proto__` or `hasOwnProperty` are names like any other;
 * - empty names left by stray spaces ("a ", " b") are skipped, where Backbone would read `off(" b")` as `off()`.
 *
 * @import { HeadgateEvent } from "./gate.js"
 * @typedef {(this: any, ...args: any[]) => any} Callback
 * @typedef {(this: any, data: any, event: HeadgateEvent) => any} EventCallback
 * @typedef {"all" | `${string}:${string}`} LifecycleName names that no topic has
 * @typedef {{ [name: string]: Callback }} EventMap
 * @typedef {{ key: string, words: string[] | null, callback: Callback, given: Callback, context: any, options: any }} Handler
 *   `words`: of the pattern; null for a name with a colon, which never enters matching
 * @typedef {{ on: Function, off: Function }} Listenable any Backbone.Events object or dispatcher
 */
import { wordsMatch } from "./topic.js";

/**
 * @template Name
 * @typedef {Name extends LifecycleName ? Callback : Name extends string ? EventCallback : any} CallbackFor
 */

/** The catch-all of `on("all", …)`, so that a topic that is named `all` can have handlers of its own. */
const ALL = ":all";

export class Dispatcher {
  /** @type {Handler[]} In order of registration. Replaced, never spliced: a running trigger goes on with the handlers that it began with. */
  #handlers = [];
  /** @type {Set<Listenable>} */
  #listeningTo = new Set();
  /** Backbone's old names. */
  bind = this.on;
  unbind = this.off;

  /**
   * Bind a callback to a name, several names ("a b"), or a map of names to callbacks.
   * @template {string | EventMap} Name
   * @param {Name} name `all` gets everything, with the name as first argument
   * @param {CallbackFor<Name>} [callback] with a map: the context
   * @param {any} [context] `this` of the callback, and a key to remove it by
   * @param {any} [options] passed on to `_handlersChanged`
   * @returns {this}
   */
  on(name, callback, context, options) {
    for (const [each, bound, ctx] of entries(name, callback, context)) {
      if (bound) this._addHandler(keyOf(each), bound, ctx, options);
    }
    return this;
  }

  /**
   * Remove callbacks: by name, callback and context, each of which may be left out to mean any.
   * @param {any} [name] a name, several, a map
   * @param {any} [callback]
   * @param {any} [context]
   * @returns {this}
   */
  off(name, callback, context) {
    for (const [each, bound, ctx] of entries(name, callback, context)) this._removeHandler(each && keyOf(each), bound, ctx);
    return this;
  }

  /**
   * Like `on`, for one call per name.
   * @template {string | EventMap} Name
   * @param {Name} name
   * @param {CallbackFor<Name>} [callback]
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
   * @param {Callback} [callback]
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
   * @param {Callback} [callback]
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
      const handlers = this.#handlers;
      this.#run(handlers, keyOf(each), args, each);
      this.#run(handlers, ALL, [each, ...args], each);
    }
    return this;
  }

  /**
   * Call the handlers of every pattern that matches a topic, in order of registration, each callback at most once per
   * context; then those of `all`.
   * @param {string} topic
   * @param {any} data
   * @param {(pattern: string) => any} describe makes the handlers' second argument
   * @param {(pattern: string) => boolean} [admits] whether a pattern's handlers may see it; asked once for each that matches
   * @returns {number} how many handlers ran
   */
  dispatch(topic, data, describe, admits = () => true) {
    const handlers = this.#handlers;
    const topicWords = topic.split(".");
    /** @type {Map<string, boolean>} */
    const verdicts = new Map();
    /** @type {Handler[]} */
    const chosen = [];
    for (const handler of handlers) {
      const { key, words, given, context } = handler;
      if (!words) continue;
      if (!verdicts.has(key)) verdicts.set(key, wordsMatch(words, topicWords) && admits(key));
      if (verdicts.get(key) && !chosen.some((had) => had.given === given && had.context === context)) chosen.push(handler);
    }
    for (const handler of chosen) this.#run([handler], handler.key, [data, describe(handler.key)], topic);
    if (chosen.length) this.#run(handlers, ALL, [topic, data, describe(chosen[0].key)], topic);
    return chosen.length;
  }

  /** Return whether a name has handlers, or `all` has. @param {string} name */
  _heard(name) {
    return this.#handlers.some(({ key }) => key === name || key === ALL);
  }

  /**
   * The raw form of `on` for one key; a subclass uses it to reach a name that `on` reads otherwise (`all`).
   * @protected
   * @param {string} key
   * @param {Callback & { _callback?: Callback }} callback
   * @param {any} context
   * @param {any} [options]
   */
  _addHandler(key, callback, context, options = {}) {
    const words = /:/.test(key) ? null : String(key).split(".");
    const handler = { key, words, callback, given: callback._callback ?? callback, context, options };
    this._handlersChanged(key, [...this.#of(key), handler], options);
    this.#handlers = [...this.#handlers, handler];
  }

  /**
   * The raw form of `off` for one key.
   * @protected
   * @param {string | null | undefined} key as all that follow: undefined means any
   * @param {Callback | null} [callback]
   * @param {any} [context]
   */
  _removeHandler(key, callback, context) {
    /** @type {Set<string>} */
    const left = new Set();
    this.#handlers = this.#handlers.filter((handler) => {
      const stays =
        (key && key !== handler.key) ||
        (callback && callback !== handler.callback && callback !== handler.given) ||
        (context && context !== handler.context);
      if (!stays) left.add(handler.key);
      return stays;
    });
    for (const each of left) this._handlersChanged(each, this.#of(each));
  }

  /**
   * Told before a handler is added, when it may throw to refuse the name, and after handlers have left.
   * @protected
   * @param {string} _name
   * @param {Handler[]} _handlers that the name has now
   * @param {any} [_added] the options of a handler that comes
   */
  _handlersChanged(_name, _handlers, _added) {}

  /**
   * Told when a handler threw.
   * @param {unknown} error
   * @param {string} _name of the event that it was called for
   */
  _handlerFailed(error, _name) {
    report(error);
  }

  /** @param {string} key */
  #of(key) {
    return this.#handlers.filter((handler) => handler.key === key);
  }

  /** Call those of these handlers that have a key. @param {Handler[]} handlers @param {string} key @param {any[]} args @param {string} name */
  #run(handlers, key, args, name) {
    for (const handler of handlers) {
      try {
        if (handler.key === key) handler.callback.apply(handler.context || this, args);
      } catch (error) {
        this._handlerFailed(error, name);
      }
    }
  }
}

/**
 * Report an error of the application's the way the browser reports an uncaught one, without stopping anything.
 * @param {unknown} error
 */
export function report(error) {
  (globalThis.reportError ?? console.error)(error);
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
    return Object.keys(name).flatMap((key) => entries(key, name[key], context ?? callback));
  }
  const names = /\s/.test(name) ? name.split(/\s+/).filter(Boolean) : [name];
  return names.map((each) => [each, callback, context]);
}

/** @param {string} name */
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
