/**
 * The transport over HTTP: a stream of Server-Sent Events by `fetch`, or long-polls where something on the way holds a stream back.
 *
 * A stream has no session: each request holds the whole object of a CONNECT and the cursor, and any gateway answers it. So a change of
 * subscriptions opens the next stream at the cursor, and what concerns no stream is a request of its own. In: blocks of the stream, or
 * answers. Out: calls of the owner (transport.js has the promises); the welcome of a stream that was opened for a change is not the owner's.
 *
 * @import { Transport, TransportOptions, TransportOwner } from "./transport.js"
 * @typedef {{ name: string, body: any, settle: (reply?: any) => void }} Change a request that the next stream answers
 */
import { Machine } from "../base/machine.js";
import { startTimer } from "../base/timer.js";
import { CURSOR, EVENT, PRESENCE, REFRESH, STATUS, SUBSCRIBE, UNSUBSCRIBE, WELCOME } from "../language/protocol.js";
import { covers } from "../language/since.js";
import { meets } from "../language/pattern-index.js";
import { endpointOf } from "./address.js";
import { reasonOf, unanswered } from "./reason.js";

/**
 * `dial`: a request is under way · `join`: the welcome has come · `close`: it was left or lost.
 * @type {Record<"closed" | "opening" | "joined", Partial<Record<"dial" | "join" | "close", "closed" | "opening" | "joined">>>}
 */
export const HTTP = {
  closed: { dial: "opening" },
  opening: { join: "joined", close: "closed" },
  joined: { close: "closed" },
};

/** A gateway writes at least every 10 s. */
const SILENCE_MS = 25_000;
/** A gateway writes at once: nothing in this time means that something on the way waits for the end of the answer. */
const HELD_BACK_MS = 4000;
/** How long a long-poll waits, in seconds, and how much longer its answer may take. */
const POLL_S = 25;
const SLACK_MS = 10_000;
/** The log has no more where a poll is not answered in this time: each poll begins with what came since the one before. */
const LEVEL_MS = 1000;
/** A joined client asks so often where no gateway has answered, and in between waits for so long: a proxy may lead to another one then. */
const TRIES = 3;
const AGAIN_MS = 200;
/** Changes that come together share a stream. */
const TOGETHER_MS = 20;
/** A room is read again at most so often because another stream knows it otherwise. */
const REREAD_MS = 30_000;
/** Acts of presence that hold as long as the client does. */
const HELD = ["enter", "watch"];
/** Where an answer cannot be read while it comes. */
const neverStreams = !globalThis.TextDecoder;
/** Requests that need no stream. */
const ALONE = ["publish", "replay", "seen", "inbox", "history", "request", "cancel"];

export { createWayBack } from "./way-back.js";

/** @param {string} address origin and namespace @param {TransportOptions} options @param {TransportOwner} owner @returns {Transport} */
export function createHttp(address, { path = "" }, owner) {
  const life = new Machine(HTTP, "closed");
  /** The object of CONNECT of this connection, without what follows. @type {any} */
  let auth;
  /** The same with the token before, until a stream with the new one has opened. @type {any} */
  let before;
  /** @type {Map<string, any>} by pattern */
  const wanted = new Map();
  /** Where unfinished replays continue, by pattern. @type {Map<string, any>} */
  const replays = new Map();
  /** Presence requests that hold, by topic; what the last stream answered to each, and when its room is read again. @type {Map<string, any>} */
  const held = new Map();
  /** @type {Map<string, { known: string, timer?: ReturnType<typeof setTimeout>, againMs: number }>} */
  const rooms = new Map();
  /** The presence requests of the present stream. @type {any[]} */
  let sent = [];
  /** @type {{ epoch: string, offset: number } | undefined} the cursor */
  let place;
  /** Whether a proxy holds streams back, and whether that is known: a finite answer has come where a stream did not. */
  let polls = neverStreams;
  let known = neverStreams;
  /** Of the present stream. */
  let running = new AbortController();
  /** Of the requests without one. @type {Set<AbortController>} */
  const lone = new Set();
  /** Changes that wait for the next stream, and those that this one is to answer. @type {Change[]} */
  let next = [];
  /** @type {Change[]} */
  let asked = [];
  /** @type {ReturnType<typeof setTimeout> | undefined} of the changes */
  let together;
  /** @type {ReturnType<typeof setTimeout> | undefined} of the present request */
  let deadline;
  /** Whether the present stream has not been welcomed yet, or has not answered all its requests. */
  let opening = false;
  /** Rises with each attempt. */
  let generation = 0;

  /** @param {any} given */
  function begin({ subscriptions, resume, ...rest }) {
    auth = rest;
    wanted.clear();
    replays.clear();
    subscriptions.forEach(want);
    place = resume;
    void open();
  }

  /** @param {any} subscription */
  function want({ since, ...each }) {
    const { pattern } = each;
    wanted.set(pattern, each);
    if (!since) return;
    const under = replays.get(pattern);
    replays.set(pattern, !under || covers(since, under) ? since : covers(under, since) ? under : { offset: 0 });
  }

  /** @param {string} pattern */
  function drop(pattern) {
    wanted.delete(pattern);
    replays.delete(pattern);
  }

  /** Note how far the replays have come, as each stream goes on with them. They come before all new events. @param {string} topic @param {number} [offset] */
  function pass(topic, offset) {
    if (!offset || !place) return;
    if (offset > place.offset) replays.clear();
    else for (const pattern of replays.keys()) if (meets(pattern, topic)) replays.set(pattern, { ...place, offset });
  }

  /** Open the next stream at the cursor. @param {any[]} [presence] requests */
  async function open(presence = [...held.values()]) {
    running.abort();
    running = new AbortController();
    const { signal } = running;
    opening = true;
    const heldBack = () => {
      polls = true;
      void open(presence);
    };
    try {
      for (let first = true; ; first = false) {
        sent = first ? presence : [...held.values()];
        const subscriptions = [...wanted.values()].map((each) => ({ ...each, since: replays.get(each.pattern) }));
        const body = { ...auth, subscriptions, resume: place, requests: sent.map((each) => [PRESENCE, each]) };
        listen(polls ? (first ? 0 : POLL_S * 1000) + SLACK_MS : HELD_BACK_MS, polls ? silent : heldBack);
        const kind = polls ? "application/json" : "text/event-stream";
        const level = first ? 0 : startTimer(() => owner.arrived(CURSOR, [place]), LEVEL_MS);
        const answer = await ask(streamOf(address, path, "stream", polls ? (first ? 0 : POLL_S) : undefined), init(body, signal, kind), signal).finally(() => clearTimeout(level));
        if (signal.aborted) return;
        known ||= polls;
        // A sign-in page is no stream.
        if (!answer.ok || !answer.headers.get("Content-Type")?.startsWith(kind)) {
          const { error, reason, retryAfterS } = reasonOf(answer.status, await answer.text(), answer.headers.get("Retry-After"));
          if (signal.aborted) return;
          const refresh = asked.find((each) => each.name === REFRESH);
          if (error && refresh) {
            // The token that was refused changes nothing, as over a WebSocket.
            auth = before;
            refresh.settle({ ok: false, error });
            return await open(presence);
          }
          const isUp = life.is("joined");
          leave();
          // An owner that was up has lost the connection. The next attempt shows whether the client is refused.
          return error && !isUp ? owner.refused(error) : owner.lost(error?.message ?? reason, retryAfterS);
        }
        if (!polls) return await read(/** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader(), signal);
        const { cursor, events, notices } = await answer.json();
        if (signal.aborted) return;
        for (let nth = 0; nth <= events.length && !signal.aborted; nth++) {
          for (const { type, before, body: notice } of notices) if (before === nth) take(type, notice);
          if (nth < events.length) take("message", events[nth]);
        }
        if (signal.aborted) return;
        place = placeOf(cursor) ?? place;
      }
    } catch (error) {
      if (!signal.aborted) lost(unanswered(address, String(error)));
    }
  }

  /** Return the answer to a request for a stream, which holds its position and may be made again. @param {string} url @param {RequestInit} request @param {AbortSignal} signal */
  async function ask(url, request, signal) {
    for (let left = life.is("joined") ? TRIES : 1; ; left--) {
      try {
        const answer = await fetch(url, request);
        if (left === 1 || ![502, 503, 504].includes(answer.status) || answer.headers.get("Retry-After")) return answer;
      } catch (error) {
        if (left === 1 || signal.aborted) throw error;
      }
      await new Promise((resolve) => startTimer(() => resolve(undefined), AGAIN_MS));
    }
  }

  /** @param {ReadableStreamDefaultReader<Uint8Array>} reader @param {AbortSignal} signal */
  async function read(reader, signal) {
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (signal.aborted) return;
      if (done) return lost("transport close");
      listen(SILENCE_MS, silent);
      const blocks = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = /** @type {string} */ (blocks.pop());
      for (const block of blocks) {
        const fields = Object.fromEntries(block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
        if (fields.data) take(fields.event ?? "message", JSON.parse(fields.data));
        if (signal.aborted) return;
        place = placeOf(fields.id) ?? place;
      }
    }
  }

  /** @param {string} name @param {any} body */
  function take(name, body) {
    if (name === "message") {
      const { topic, data, ...meta } = body;
      pass(topic, meta.offset);
      owner.arrived(EVENT, [topic, data, meta]);
    } else if (name === WELCOME) welcomed(body);
    else if (name === "answers") {
      for (const [nth, answer] of body.answers.entries()) present(sent[nth], answer);
      answered();
    }
    else {
      if (name === STATUS) for (const { pattern } of body.ended ?? []) drop(pattern);
      owner.arrived(name, [body]);
    }
  }

  /** @param {any} welcome */
  function welcomed(welcome) {
    place ??= welcome.from ?? { epoch: welcome.epoch, offset: welcome.offset };
    if (life.offer("join")) {
      // Its owner asks again for the refused ones in time.
      for (const { pattern, ok } of welcome.subscriptions) if (!ok) drop(pattern);
      owner.arrived(WELCOME, [welcome]);
    }
    // Its owner must learn of the other log by another welcome.
    else if (welcome.resumed === false) return lost("the log has lost its end");
    else settle(welcome);
    if (!sent.length) answered();
  }

  /** The stream has sent all that it was opened for. */
  function answered() {
    opening = false;
    if (next.length) soon();
  }

  /** @param {any} welcome of a stream that was opened for changes */
  function settle({ epoch, offset, from, user, subscriptions }) {
    const start = from ?? { epoch, offset };
    // Each stream is another client, and the gateway may refuse it what it allowed the one before.
    const isAsked = (/** @type {string} */ pattern) => asked.some(({ name, body }) => name === SUBSCRIBE && body.pattern === pattern);
    const ended = subscriptions.flatMap((/** @type {any} */ { pattern, ok, error }) => (ok || isAsked(pattern) ? [] : [{ pattern, error }]));
    if (ended.length) take(STATUS, { ended });
    for (const { name, body, settle: done } of asked.slice()) {
      if (name === SUBSCRIBE) {
        const { ok, error } = subscriptions.find((/** @type {any} */ each) => each.pattern === body.pattern) ?? {};
        if (!ok) drop(body.pattern);
        done(ok ? { ok, pattern: body.pattern, epoch: start.epoch, offset: start.offset } : { ok, error });
      } else if (name === REFRESH) done({ ok: true, user });
      else if (name !== PRESENCE || body.act === "leave") done({ ok: true, pattern: body.pattern });
    }
  }

  /** Take the answer to a presence request: for its caller, or to find out that a room has changed between two streams. @param {any} body @param {any} answer */
  function present(body, answer) {
    const { topic } = body;
    const now = performance.now();
    const room = rooms.get(topic) ?? { known: "", againMs: 0 };
    const { known } = room;
    if (HELD.includes(body.act)) rooms.set(topic, Object.assign(room, { known: `${answer.copy} ${answer.version}` }));
    const change = asked.find((each) => each.body === body);
    if (change) return change.settle(answer);
    if (room.known === known || room.timer) return;
    room.timer = startTimer(() => {
      Object.assign(room, { timer: undefined, againMs: performance.now() + REREAD_MS });
      owner.arrived(PRESENCE, [{ topic, reset: true }]);
    }, Math.max(0, room.againMs - now));
  }

  /** Have the next stream answer the changes. */
  function soon() {
    together ??= startTimer(change, TOGETHER_MS);
  }

  function change() {
    clearTimeout(together);
    together = undefined;
    if (!life.is("joined") || opening) return;
    const presence = new Map(held);
    const once = [];
    // One that undoes another waits for the stream after this one, or the other would have no answer.
    const named = new Set();
    const again = next.findIndex(({ body }) => named.size === named.add(body.topic ?? body.pattern).size);
    asked = again < 0 ? next : next.slice(0, again);
    next = again < 0 ? [] : next.slice(again);
    for (const { name, body } of asked) {
      const { pattern, topic, act } = body;
      if (name === SUBSCRIBE) want(body);
      else if (name === UNSUBSCRIBE) drop(pattern);
      else if (name === REFRESH) {
        before = auth;
        auth = { ...auth, ...body };
      }
      else if (act === "leave") presence.delete(topic);
      else if (HELD.includes(act)) presence.set(topic, body);
      else once.push(body);
    }
    held.clear();
    for (const [topic, body] of presence) held.set(topic, body);
    void open([...held.values(), ...once]);
  }

  /** @param {number} ms @param {() => void} act */
  function listen(ms, act) {
    clearTimeout(deadline);
    deadline = startTimer(act, ms);
  }

  function silent() {
    lost("ping timeout");
  }

  /** @param {string} reason */
  function lost(reason) {
    leave();
    owner.lost(reason);
  }

  /** Nothing of the connection counts any more. */
  function leave() {
    for (const each of [running, ...lone]) each.abort();
    generation++;
    polls &&= known;
    opening = false;
    clearTimeout(deadline);
    clearTimeout(together);
    together = undefined;
    held.clear();
    for (const { timer } of rooms.values()) clearTimeout(timer);
    rooms.clear();
    if (!life.offer("close")) return;
    for (const { settle: done } of [...next, ...asked]) done();
    next = [];
    asked = [];
  }

  /** @param {any} body @param {AbortSignal} signal @param {string} accept @returns {RequestInit} */
  const init = (body, signal, accept) => ({
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: accept },
    body: JSON.stringify(body),
    signal,
    cache: "no-store",
    credentials: "include",
    // To a sign-in page, which may be of another site.
    redirect: "manual",
  });

  /** @param {string} name @param {any} body @param {number} timeoutMs */
  async function alone(name, body, timeoutMs) {
    const control = new AbortController();
    const limit = startTimer(() => control.abort(), timeoutMs);
    lone.add(control);
    try {
      // Any gateway answers, also one that has had less than this page.
      const answer = await fetch(streamOf(address, path, "request"), init({ ...auth, name, body: { ...(name === "inbox" && place), ...body } }, control.signal, "application/json"));
      const text = await answer.text();
      if (answer.ok) return JSON.parse(text);
      const { error, reason } = reasonOf(answer.status, text, answer.headers.get("Retry-After"));
      if (error) return { ok: false, error };
      // In the gateway's place a sign-in page, a proxy or a gateway without streams has refused it.
      if (answer.status < 500) return { error: { code: "unreachable", url: address, reason, retry: true } };
      throw Error(reason);
    } catch (error) {
      // What has an id may have arrived all the same.
      if (control.signal.aborted || body.id) throw error;
      return { error: { code: "disconnected", retry: true } };
    } finally {
      clearTimeout(limit);
      lone.delete(control);
    }
  }

  return {
    connect() {
      life.take("dial");
      const mine = ++generation;
      owner.greet((given) => mine === generation && life.is("opening") && begin(given));
    },
    disconnect: leave,
    close: leave,

    probe() {
      if (life.is("joined") && !opening) change();
    },

    request: (name, body, timeoutMs) =>
      ALONE.includes(name)
        ? alone(name, body, timeoutMs)
        : new Promise((resolve, reject) => {
            if (![SUBSCRIBE, UNSUBSCRIBE, REFRESH, PRESENCE].includes(name)) return reject(Error(`${name} needs a WebSocket`));
            /** @type {Change} */
            const mine = {
              name,
              body,
              settle(reply) {
                clearTimeout(limit);
                next = next.filter((each) => each !== mine);
                asked = asked.filter((each) => each !== mine);
                if (reply) resolve(reply);
                else reject(Error("no answer"));
              },
            };
            const limit = startTimer(mine.settle, timeoutMs);
            next.push(mine);
            soon();
          }),
  };
}

/** @param {string | null | undefined} cursor `<epoch>:<offset>` */
function placeOf(cursor) {
  const [epoch, offset] = cursor?.split(":") ?? [];
  return offset ? { epoch, offset: Number(offset) } : undefined;
}

/**
 * Return the URL of a stream, or of a lone request: below the Socket.IO endpoint, as a proxy may lead nothing else to the gateway.
 * @param {string} address origin and namespace
 * @param {string} path of the endpoint
 * @param {"stream" | "request"} name
 * @param {number} [waitS] how long a long-poll waits
 */
function streamOf(address, path, name, waitS) {
  return endpointOf(address, path, `${name}?namespace=${address.split("/").pop()}${waitS === undefined ? "" : `&wait=${waitS}`}`);
}
