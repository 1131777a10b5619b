/**
 * The user's own topics, which a page may write as `users.me.…`. On the wire the user's word replaces `me`. Pure state, no I/O.
 *
 * In: handlers that come and leave, each welcome, names of topics and patterns. Out: subscriptions under their names on the wire; names as the page writes
 * them. Until the first welcome the user is unknown, and patterns that begin with `users.me.` wait.
 *
 * @import { Since } from "../language/protocol.js"
 * @import { Wishes } from "./subscription.js"
 */
const ME = "users.me.";

/** Return whether a pattern or topic begins with `users.me.`. @param {string} name */
export const isMine = (name) => name.startsWith(ME);

/**
 * @param {{ acquire: (pattern: string, wishes: Wishes) => void, release: (pattern: string, wishes: Wishes) => unknown }} subscriptions
 * @param {{ expect: (pattern: string, since: Since) => void, forget: (pattern: string) => unknown }} replays
 */
export function createOwnTopics(subscriptions, replays) {
  /** The prefix that replaces ME on the wire; empty until a welcome. */
  let own = "";
  /** Patterns that begin with ME, by the wishes of each handler. @type {Map<Wishes, string>} */
  const handlers = new Map();

  /** Return the name on the wire. @param {string} name */
  const wired = (name) => (own && isMine(name) ? own + name.slice(ME.length) : name);
  /** Return a name of the wire as the page may write it. @param {string} name */
  const mine = (name) => (own && name.startsWith(own) ? ME + name.slice(own.length) : name);
  /** Return whether a pattern has an effect now. @param {string} pattern */
  const isKnown = (pattern) => own || !isMine(pattern);

  /** A subscription gets a handler. @param {string} pattern @param {Wishes} wishes */
  function acquire(pattern, wishes) {
    const name = wired(pattern);
    subscriptions.acquire(name, wishes);
    if (wishes.since) replays.expect(name, wishes.since);
  }

  /** A subscription has lost a handler. @param {string} pattern @param {Wishes} wishes */
  function release(pattern, wishes) {
    const name = wired(pattern);
    if (!subscriptions.release(name, wishes)) replays.forget(name);
  }

  return {
    wired,
    mine,

    /** Return whether a pattern waits for the user. @param {string} pattern */
    waits: (pattern) => !isKnown(pattern) && [...handlers.values()].includes(pattern),

    /** Return patterns of the wire as the page has them, and in the form `users.me.…` too if they have handlers in that form. @param {string[]} patterns */
    named(patterns) {
      const called = new Set(handlers.values());
      return [...patterns, ...patterns.map(mine).filter((name) => called.has(name))];
    },

    /** @param {string} pattern @param {Wishes} wishes */
    comes(pattern, wishes) {
      if (isMine(pattern)) handlers.set(wishes, pattern);
      if (isKnown(pattern)) acquire(pattern, wishes);
    },

    /** @param {string} pattern @param {Wishes} wishes the same object as in `comes` */
    left(pattern, wishes) {
      handlers.delete(wishes);
      if (isKnown(pattern)) release(pattern, wishes);
    },

    /** The gateway has named the prefix for ME; clients without a token have none. @param {string} [prefix] */
    welcome(prefix = ME) {
      if (prefix === own) return;
      const each = [...handlers];
      if (own) for (const [wishes, pattern] of each) release(pattern, wishes);
      own = prefix;
      for (const [wishes, pattern] of each) acquire(pattern, wishes);
    },
  };
}
