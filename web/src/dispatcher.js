/**
 * The dispatcher: names → handlers, with the complete Backbone.Events interface and its calling conventions.
 *
 * In: calls of `on`, `off`, … from the application, `trigger` for local events, `dispatch` for events from the wire. Out: handler calls. It knows no network.
 * A subclass learns from `_handlerComes` and `_handlerLeft` which names have handlers. It imports neither Backbone nor Underscore and works with them in
 * both directions (`view.listenTo(gate, …)`, `gate.listenTo(model, …)`).
 *
 * A handler whose context has `_isPart` belongs to a part of this package (a load, a store, a room). `off` removes it only by its callback or context, which
 * the application does not have.
 *
 * Each name has its own handlers, an index finds patterns, and handlers are removed by name, callback or context, so no call searches all handlers. The
 * lists of a running trigger are made when they are first needed and never changed, so it continues with the handlers that it began with.
 *
 * It differs from Backbone.Events in three deliberate points:
 * - a handler that throws does not stop the others; `_handlerFailed` is called;
 * - names are keys of a Map, so `constructor`, `__proto__` or `hasOwnProperty` are names like any other;
 * - empty names from stray spaces ("a ", " b") are skipped, whereas Backbone reads `off(" b")` as `off()`.
 *
 * @import { HeadgateEvent } from "./gate.js"
 * @typedef {(this: any, ...args: any[]) => any} Callback
 * @typedef {(this: any, data: any, event: HeadgateEvent) => any} EventCallback
 * @typedef {"all" | `${string}:${string}`} LifecycleName names that no topic has
 * @typedef {{ [name: string]: Callback }} EventMap
 * @typedef {Callback & { _callback?: Callback, _left?: () => void, _isPart?: boolean | undefined }} Own a function that wraps the given `_callback`; `_left` is called after
 *   its removal
 * @typedef {{ key: string, callback: Own, given: Callback, context: any, options: any, nth: number }} Handler `given`: the callback of the application; `nth`: its place in
 *   the order of registration
 * @typedef {{ key: string, handlers: Set<Handler>, list: Handler[] | undefined, words: string[] | false | undefined }} Name the handlers of one name, in order of
 *   registration; `list`: the same as a list that is never changed; undefined: they have changed since it was made; `words`: of a pattern with wildcards; false: it is a
 *   topic; undefined: of a lifecycle event
 * @typedef {{ names: Name[], lists: Handler[][], chosen: Handler[] }} Route the names that match a topic, and their lists, from which `chosen` was made
 * @typedef {{ on: Function, off: Function }} Listenable a dispatcher, or any object with Backbone.Events
 */
import { report } from "./base/report.js";
import { PatternIndex } from "./language/pattern-index.js";
import { checkArgument } from "./language/options.js";
import { hasWildcard } from "./language/topic.js";

/**
 * @template Name
 * @typedef {Name extends LifecycleName ? Callback : Name extends string ? EventCallback : any} CallbackFor
 */

/** The key of `on("all", …)`, so that a topic named `all` can have its own handlers. */
const ALL = ":all";
/** @type {Handler[]} */
const NONE = [];
/** The most remembered routes. */
const MAX_ROUTES = 2000;
const always = () => true;

/** Return the present handlers of a name, in a list that is never changed. @param {Name | undefined} name */
function listOf(name) {
  if (!name) return NONE;
  name.list ??= [...name.handlers];
  return name.list;
}

/**
 * Return the handlers of names in order of registration, each callback at most once per context.
 * @param {Route} route remembers them while no name has other handlers
 */
function choose(route) {
  const { names, lists } = route;
  let nth = 0;
  while (nth < names.length && names[nth].list && names[nth].list === lists[nth]) nth++;
  if (nth === names.length) return route.chosen;
  route.lists = names.map(listOf);
  [route.chosen] = route.lists;
  if (names.length < 2 && route.chosen.length < 2) return route.chosen;
  /** @type {Map<Callback, Set<any>>} */
  const had = new Map();
  route.chosen = route.lists
    .flat()
    .sort((one, other) => one.nth - other.nth)
    .filter(({ given, context }) => {
      const contexts = had.get(given) ?? new Set();
      had.set(given, contexts);
      return contexts.size < contexts.add(context).size;
    });
  return route.chosen;
}

export class Dispatcher {
  /** @type {Map<string, Name>} those with handlers */
  #names = new Map();
  /** Names with wildcards. @type {PatternIndex<Name>} */
  #patterns = new PatternIndex();
  /** Routes by topic, while no name comes or goes. @type {Map<string, Route>} */
  #routes = new Map();
  /** Handlers by callback and context, for `off`. @type {Map<any, Set<Handler>>} */
  #owners = new Map();
  #nth = 0;
  /** Objects that this one listens to, with the callbacks and their names. @type {Map<Listenable, Map<Own, Set<string>>>} */
  #listeningTo = new Map();
  /** Backbone's old names. */
  bind = this.on;
  unbind = this.off;

  /**
   * Bind a callback to a name, several names ("a b"), or a map of names to callbacks.
   * @template {string | EventMap} Name
   * @param {Name} name `all` gets everything, with the name as first argument
   * @param {CallbackFor<Name>} [callback] with a map: the context
   * @param {any} [context] `this` of the callback, and a criterion for `off`
   * @param {any} [options] passed on to `_handlerComes`
   * @returns {this}
   */
  on(name, callback, context, options) {
    for (const [each, bound, ctx] of bindings("on", name, callback, context)) this._addHandler(keyOf(each), bound, ctx, options);
    return this;
  }

  /**
   * Remove callbacks of the application by name, callback and context, each of which may be omitted to match any.
   * @param {any} [name] a name, several, a map
   * @param {any} [callback]
   * @param {any} [context]
   * @returns {this}
   */
  off(name, callback, context) {
    for (const [each, bound, ctx] of entries(name, callback, context)) this._removeHandler(each && keyOf(each), bound, ctx, !bound && !ctx);
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
    for (const [each, bound, ctx] of bindings("once", name, callback, context)) this.on(each, onlyOnce(bound, (once) => this.off(each, once)), ctx, options);
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
    checkArgument("listenTo: other", ".on", other);
    for (const [each, bound] of bindings("listenTo", name, callback, this)) {
      other.on(each, bound, this);
      const calls = this.#listeningTo.get(other) ?? new Map();
      this.#listeningTo.set(other, calls);
      calls.set(bound, (calls.get(bound) ?? new Set()).add(keyOf(each)));
    }
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
    for (const [each, bound] of bindings("listenToOnce", name, callback, this)) this.listenTo(other, each, onlyOnce(bound, (once) => this.stopListening(other, each, once)));
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
    for (const each of other ? [other] : [...this.#listeningTo.keys()]) {
      const calls = this.#listeningTo.get(each);
      if (!calls) continue;
      each.off(name, callback, this);
      // A dispatcher has reported each removed handler (`#unheard`). An object of Backbone has not.
      for (const [event, gone] of entries(/** @type {any} */ (name), callback)) {
        for (const [bound, keys] of [...calls]) {
          if (gone && gone !== bound && gone !== bound._callback) continue;
          for (const key of event ? [keyOf(event)] : [...keys]) this.#unheard(each, key, bound);
        }
      }
    }
    return this;
  }

  /**
   * Call the handlers of exactly this name, then those of `all`. No pattern is matched, and nothing is published.
   * @param {string | EventMap} name
   * @param {...any} args
   * @returns {this}
   */
  trigger(name, ...args) {
    // The usual case: one name, which has handlers.
    if (this.#names.has(/** @type {any} */ (name)) && name !== "all") this.#trigger(/** @type {any} */ (name), args);
    else for (const [each] of entries(name)) this.#trigger(each, args);
    return this;
  }

  /**
   * Call the handlers of every pattern that matches a topic, in order of registration, each callback at most once per
   * context; then those of `all`.
   * @param {string} topic
   * @param {any} data
   * @param {(pattern: string) => any} describe makes the handlers' second argument
   * @param {(pattern: string) => boolean} [admits] whether a pattern's handlers may see it; called once for each matching pattern
   * @param {string} [alias] another name of the topic, or the same
   * @returns {number} the number of handlers that ran
   */
  dispatch(topic, data, describe, admits = always, alias = topic) {
    const all = listOf(this.#names.get(ALL));
    const route = this.#route(topic, alias);
    const { names } = route;
    const { length } = names;
    // Nearly always each is admitted, and the remembered route can be used.
    const admitted = length === 1 ? (admits(names[0].key) ? names : []) : names.filter(({ key }) => admits(key));
    const chosen = choose(admitted.length === length ? route : { names: admitted, lists: [], chosen: NONE });
    /** @type {string | undefined} */
    let pattern;
    let event;
    for (const handler of chosen) {
      try {
        // One object for all handlers of a pattern.
        if (handler.key !== pattern) {
          pattern = handler.key;
          event = describe(pattern);
        }
        handler.callback.call(handler.context || this, data, event);
      } catch (error) {
        this._handlerFailed(error, topic);
      }
    }
    if (all.length && chosen.length) this.#run(all, [topic, data, describe(chosen[0].key)], topic);
    return chosen.length;
  }

  /** Call the handlers of exactly this name, but not those of `all`. @param {string} name */
  _call(name) {
    this.#run(listOf(this.#names.get(name)), [], name);
  }

  /** Return whether a name has handlers, or `all` has. @param {string} name */
  _heard(name) {
    return this.#names.has(name) || this.#names.has(ALL);
  }

  /**
   * The raw form of `on` for one key. A subclass uses it for a name that `on` interprets (`all`).
   * @protected
   * @param {string} key
   * @param {Own} callback
   * @param {any} context
   * @param {any} [given] options
   */
  _addHandler(key, callback, context, given) {
    const options = this._handlerComes(key, given);
    const name = this.#names.get(key) ?? this.#begin(key);
    const handler = { key, callback, given: callback._callback ?? callback, context, options, nth: this.#nth++ };
    name.handlers.add(handler);
    name.list = undefined;
    this.#own(callback, handler);
    if (handler.given !== callback) this.#own(handler.given, handler);
    if (context) this.#own(context, handler);
  }

  /**
   * The raw form of `off` for one key.
   * @protected
   * @param {string | null} [key] undefined matches any, as for the others
   * @param {Callback | null} [callback]
   * @param {any} [context]
   * @param {boolean} [sparesParts] whether those of parts of this package stay
   */
  _removeHandler(key, callback, context, sparesParts) {
    const left = this.#candidates(key, callback, context).filter(
      (handler) =>
        (!key || key === handler.key) &&
        (!callback || callback === handler.callback || callback === handler.given) &&
        (!context || context === handler.context) &&
        !(sparesParts && handler.context?._isPart),
    );
    for (const handler of left) this.#forget(handler);
    for (const { key, options, callback } of left) {
      callback._left?.();
      this._handlerLeft(key, options);
    }
  }

  /**
   * Called before a handler is added. It may throw to refuse the name.
   * @protected
   * @param {string} name
   * @param {any} _options of the handler
   * @returns {any} those for `_handlerLeft`: a copy, because handlers may share theirs, and the application may change them
   */
  _handlerComes(name, _options) {
    checkArgument("on: name", /./, name);
  }

  /**
   * Called after a handler was removed.
   * @protected
   * @param {string} _name
   * @param {any} _options of the handler
   */
  _handlerLeft(_name, _options) {}

  /**
   * Called when a handler has thrown.
   * @param {unknown} error
   * @param {string} _name of the event that it was called for
   */
  _handlerFailed(error, _name) {
    report(error);
  }

  /** Another object no longer calls this one. @param {Listenable} other @param {string} key @param {Own} callback */
  #unheard(other, key, callback) {
    const calls = this.#listeningTo.get(other);
    const keys = calls?.get(callback);
    if (keys?.delete(key) && !keys.size && calls?.delete(callback) && !calls.size) this.#listeningTo.delete(other);
  }

  /** @param {string} name @param {any[]} args */
  #trigger(name, args) {
    const all = listOf(this.#names.get(ALL));
    this.#run(listOf(this.#names.get(keyOf(name))), args, name);
    if (all.length) this.#run(all, [name, ...args], name);
  }

  /** Return the names that match a topic. @param {string} topic @param {string} alias @returns {Route} */
  #route(topic, alias) {
    const key = alias === topic ? topic : `${alias} ${topic}`;
    const known = this.#routes.get(key);
    if (known) return known;
    checkArgument("dispatch: topic", "string", topic);
    /** @type {Set<Name>} */
    const names = new Set();
    for (const each of [topic, alias]) {
      for (const name of this.#patterns.match(each)) names.add(name);
      const exact = this.#names.get(each);
      if (exact?.words === false) names.add(exact);
    }
    if (this.#routes.size >= MAX_ROUTES) this.#routes.clear();
    const route = { names: [...names], lists: [], chosen: NONE };
    this.#routes.set(key, route);
    return route;
  }

  /** Return a superset of the handlers to remove, those that the narrowest criterion matches. @param {any[]} criteria key, callback, context */
  #candidates(...[key, ...owners]) {
    const sets = owners.filter(Boolean).map((owner) => this.#owners.get(owner));
    if (key) sets.push(this.#names.get(key)?.handlers);
    if (!sets.length) return [...this.#names.values()].flatMap(listOf);
    const [narrowest] = sets.sort((one, other) => (one?.size ?? 0) - (other?.size ?? 0));
    return [...(narrowest ?? NONE)];
  }

  /** @param {any} owner @param {Handler} handler */
  #own(owner, handler) {
    this.#owners.set(owner, (this.#owners.get(owner) ?? new Set()).add(handler));
  }

  /** @param {string} key without handlers */
  #begin(key) {
    /** @type {Name} */
    const name = { key, handlers: new Set(), list: undefined, words: isTopic(key) ? hasWildcard(key) && key.split(".") : undefined };
    this.#routes.clear();
    this.#names.set(key, name);
    if (name.words) this.#patterns.add(name.words, name);
    return name;
  }

  /** @param {Handler} handler */
  #forget(handler) {
    const name = /** @type {Name} */ (this.#names.get(handler.key));
    name.handlers.delete(handler);
    name.list = undefined;
    if (!name.handlers.size) {
      this.#names.delete(handler.key);
      this.#routes.clear();
      if (name.words) this.#patterns.delete(name.words);
    }
    for (const owner of [handler.callback, handler.given, handler.context]) {
      const owned = this.#owners.get(owner);
      owned?.delete(handler);
      if (owned && !owned.size) this.#owners.delete(owner);
    }
    // As in Backbone, a listener forgets an object that no longer calls it.
    const { context } = handler;
    if (context instanceof Dispatcher) context.#unheard(this, handler.key, handler.callback);
  }

  /** @param {Handler[]} handlers @param {any[]} args @param {string} name */
  #run(handlers, args, name) {
    for (const handler of handlers) {
      try {
        handler.callback.apply(handler.context || this, args);
      } catch (error) {
        this._handlerFailed(error, name);
      }
    }
  }
}

/**
 * Return [name, callback, context] for a name, names separated by spaces, or a map, by Backbone's rules.
 * @param {string | EventMap} name
 * @param {any} [callback]
 * @param {any} [context]
 * @returns {[string, any, any][]}
 */
function entries(name, callback, context) {
  if (name && typeof name === "object") {
    return Object.keys(name).flatMap((key) => entries(key, name[key], context ?? callback));
  }
  const names = typeof name === "string" && /\s/.test(name) ? name.split(/\s+/).filter(Boolean) : [name];
  return names.map((each) => [each, callback, context]);
}

/**
 * Return the same for names that get a callback. As in Backbone, those without one are skipped.
 * @param {string} of the call @param {string | EventMap} name @param {any} callback @param {any} context
 * @throws {TypeError} a callback is no function
 */
function bindings(of, name, callback, context) {
  if (Array.isArray(name)) checkArgument(`${of}: name`, "string object", name);
  const bound = entries(name, callback, context).filter(([, each]) => each);
  for (const [, each] of bound) checkArgument(`${of}: callback`, "function", each);
  return bound;
}

/** Return whether a name may be a topic or pattern. One with a colon is never matched. @param {string} name */
export function isTopic(name) {
  return typeof name !== "string" || !name.includes(":");
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
  // Backbone's name for it. `off` finds a `once` by the given callback.
  once._callback = callback;
  return once;
}
