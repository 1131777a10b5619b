/**
 * The user's own topics, which a page may call `users.me.…`: on the wire the word of the user's name stands there.
 *
 * In: handlers that come and leave, each welcome, names of topics and patterns. Out: subscriptions by their names on the
 * wire; names as the page has them. Until the first welcome the user is unknown, and patterns by that name wait. Pure state, no I/O.
 *
 * @import { Since } from "../language/protocol.js"
 * @import { Wishes } from "./subscription.js"
 */
const ME = "users.me.";

/** Return whether a pattern or topic is called by `users.me`. @param {string} name */
export const isMine = (name) => name.startsWith(ME);

/**
 * @param {{ acquire: (pattern: string, wishes: Wishes) => void, release: (pattern: string, wishes: Wishes) => boolean | undefined }} subscriptions
 * @param {{ expect: (pattern: string, since: Since) => void, forget: (pattern: string) => unknown }} replays
 */
export function createOwnTopics(subscriptions, replays) {
  /** What stands for ME on the wire; empty until a welcome. */
  let own = "";
  /** Patterns of that name, by the wishes of each handler. @type {Map<Wishes, string>} */
  const handlers = new Map();

  /** Return the name on the wire. @param {string} name */
  const wired = (name) => (own && isMine(name) ? own + name.slice(ME.length) : name);
  /** Return what the page may call a name of the wire. @param {string} name */
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

    /** Return what the page calls patterns of the wire: by both names those with handlers by `users.me`. @param {string[]} patterns */
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

    /** The gateway has named the words for ME; there are none for clients without a token. @param {string} [said] */
    welcome(said = ME) {
      if (said === own) return;
      const each = [...handlers];
      if (own) for (const [wishes, pattern] of each) release(pattern, wishes);
      own = said;
      for (const [wishes, pattern] of each) acquire(pattern, wishes);
    },
  };
}
