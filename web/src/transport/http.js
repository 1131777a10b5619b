/**
 * The transport over HTTP: a stream of Server-Sent Events by `fetch`, or long-polls where a proxy holds a stream back.
 *
 * A stream has no session. Each request holds the complete object of a CONNECT and the cursor, so any gateway can answer it. A change of subscriptions
 * opens the next stream at the cursor. Requests that concern no stream are separate. In: blocks of the stream, or answers. Out: calls of the owner
 * (transport.js has the promises). The owner gets only the first welcome of a connection, not those of streams that were opened for a change.
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
 * `dial`: a request is under way · `join`: the welcome has come · `close`: the connection was left or lost.
 * @type {Record<"closed" | "opening" | "joined", Partial<Record<"dial" | "join" | "close", "closed" | "opening" | "joined">>>}
 */
export const HTTP = {
  closed: { dial: "opening" },
  opening: { join: "joined", close: "closed" },
  joined: { close: "closed" },
};

/** A gateway writes at least every 10 s. */
const SILENCE_MS = 25_000;
/** A gateway writes at once. If nothing comes in this time, a proxy waits for the end of the answer. */
const HELD_BACK_MS = 4000;
/** How long a long-poll waits, in seconds, and how much longer its answer may take. */
const POLL_S = 25;
const SLACK_MS = 10_000;
/** The client has everything if a poll is not answered in this time, because each poll begins with what came since the previous one. */
const LEVEL_MS = 1000;
/** A joined client makes so many attempts, so far apart, when no gateway answers. The proxy may lead the next attempt to another one. */
const TRIES = 3;
const AGAIN_MS = 200;
/** Changes that come together share a stream. */
const TOGETHER_MS = 20;
/** Least time between two reads of a room because the next stream answers with another version of it. */
const REREAD_MS = 30_000;
/** Characters of a request that outlives the page: 60 KB, if each takes three bytes. */
const MOST_LAST = 20_000;
/** Acts of presence that hold as long as the client does. */
const HELD = ["enter", "watch"];
/** Whether the platform cannot read an answer while it arrives. */
const neverStreams = !globalThis.TextDecoder;
/** Requests that need no stream. */
const ALONE = ["publish", "replay", "seen", "inbox", "history", "request", "cancel"];

export { createWayBack } from "./way-back.js";

/** @param {string} address origin and namespace @param {TransportOptions} options @param {TransportOwner} owner @returns {Transport} */
export function createHttp(address, { path = "" }, owner) {
  const life = new Machine(HTTP, "closed");
  /** The object of CONNECT of this connection, without subscriptions and position. @type {any} */
  let auth;
  /** The same with the previous token, until a stream with the new one has opened. @type {any} */
  let before;
  /** @type {Map<string, any>} by pattern */
  const wanted = new Map();
  /** Where unfinished replays continue, by pattern. @type {Map<string, any>} */
  const replays = new Map();
  /** Presence requests that each stream repeats, by topic. @type {Map<string, any>} */
  const held = new Map();
  /** By topic, the version that the last stream answered, and when the room may be read again. @type {Map<string, { known: string, timer?: ReturnType<typeof setTimeout>, againMs: number }>} */
  const rooms = new Map();
  /** The presence requests of the present stream. @type {any[]} */
  let sent = [];
  /** @type {{ epoch: string, offset: number } | undefined} the cursor */
  let place;
  /** Whether a proxy holds streams back, and whether that is certain, because a finite answer has come where a stream did not. */
  let polls = neverStreams;
  let known = neverStreams;
  /** Aborts the present stream. */
  let running = new AbortController();
  /** Abort the separate requests. @type {Set<AbortController>} */
  const lone = new Set();
  /** Changes that wait for the next stream. @type {Change[]} */
  let next = [];
  /** Changes that the present stream answers. @type {Change[]} */
  let asked = [];
  /** @type {ReturnType<typeof setTimeout> | undefined} opens a stream for the changes */
  let together;
  /** @type {ReturnType<typeof setTimeout> | undefined} ends the present request */
  let deadline;
  /** Whether the present stream has not been welcomed yet, or has not answered all its requests. */
  let opening = false;
  /** Counts attempts. */
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

  /** Note how far the replays have come, because each stream continues them. They come before all new events. @param {string} topic @param {number} [offset] */
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
        // A sign-in page is not a stream.
        if (!answer.ok || !answer.headers.get("Content-Type")?.startsWith(kind)) {
          const { error, reason, retryAfterS } = reasonOf(answer.status, await answer.text(), answer.headers.get("Retry-After"));
          if (signal.aborted) return;
          const refresh = asked.find((each) => each.name === REFRESH);
          if (error && refresh) {
            // As over a WebSocket, a refused token changes nothing.
            auth = before;
            refresh.settle({ ok: false, error });
            return await open(presence);
          }
          const isUp = life.is("joined");
          leave();
          // An established connection is lost. The next attempt shows whether the client is refused.
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

  /** Return the answer to a request for a stream, which holds its position and may be repeated. @param {string} url @param {RequestInit} request @param {AbortSignal} signal */
  async function ask(url, request, signal) {
    for (let left = life.is("joined") ? TRIES : 1; ; left--) {
      try {
        const answer = await fetch(url, request);
        if (left === 1 || answer.status < 502 || answer.headers.get("Retry-After")) return answer;
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
      // The owner asks for the refused ones again when it is time.
      for (const { pattern, ok } of welcome.subscriptions) if (!ok) drop(pattern);
      owner.arrived(WELCOME, [welcome]);
    }
    // The owner must learn of the other log from a new welcome.
    else if (welcome.resumed === false) return lost("the log has lost its end");
    else settle(welcome);
    if (!sent.length) answered();
  }

  /** The stream has answered everything that it was opened for. */
  function answered() {
    opening = false;
    if (next.length) soon();
  }

  /** Answer the changes. @param {any} welcome of the stream that was opened for them */
  function settle({ epoch, offset, from, user, subscriptions }) {
    const start = from ?? { epoch, offset };
    // Each stream is another client to the gateway, which may refuse what it allowed the previous one.
    const isAsked = (/** @type {string} */ pattern) => asked.some(({ name, body }) => name === SUBSCRIBE && body.pattern === pattern);
    const ended = subscriptions.flatMap((/** @type {any} */ { pattern, ok, error }) => (ok || isAsked(pattern) ? [] : [{ pattern, error }]));
    if (ended.length) take(STATUS, { ended });
    for (const { name, body, settle: done } of asked.slice()) {
      if (name === SUBSCRIBE) {
        const { ok, after, error } = subscriptions.find((/** @type {any} */ each) => each.pattern === body.pattern) ?? {};
        if (!ok) drop(body.pattern);
        done(ok ? { ok, pattern: body.pattern, epoch: start.epoch, offset: start.offset, after } : { ok, error });
      } else if (name === REFRESH) done({ ok: true, user });
      else if (name !== PRESENCE || body.act === "leave") done({ ok: true, pattern: body.pattern });
    }
  }

  /** Give the answer to a presence request to its caller. If it has none, report a room changed between two streams. @param {any} body @param {any} answer */
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

  /** Open a stream for the changes soon. */
  function soon() {
    together ??= startTimer(change, TOGETHER_MS);
  }

  function change() {
    clearTimeout(together);
    together = undefined;
    if (!life.is("joined") || opening) return;
    const presence = new Map(held);
    const once = [];
    // A change that undoes another one waits for the following stream. Otherwise the first would get no answer.
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

  /** Leave the connection. Nothing that comes from it counts after this. */
  function leave() {
    running.abort();
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
    // A redirect leads to a sign-in page, perhaps of another site.
    redirect: "manual",
  });

  /** Make a separate request. @param {string} name @param {any} body @param {number} timeoutMs */
  async function alone(name, body, timeoutMs) {
    const control = new AbortController();
    const limit = startTimer(() => control.abort(), timeoutMs);
    lone.add(control);
    try {
      const request = init({ ...auth, name, body: { ...(name === "inbox" && place), ...body } }, control.signal, "application/json");
      // It outlives the page. All such requests may have 64 KiB together.
      const keepalive = lone.size < 2 && /** @type {string} */ (request.body).length < MOST_LAST;
      // Any gateway may answer, even one behind this page in the log. The position makes it wait.
      const answer = await fetch(streamOf(address, path, "request"), { ...request, keepalive });
      const text = await answer.text();
      if (answer.ok && text[0] === "{") return JSON.parse(text);
      const { error, reason } = reasonOf(answer.status, text, answer.headers.get("Retry-After"));
      if (error) return { ok: false, error };
      // A sign-in page, a proxy or a gateway without streams has refused it.
      if (answer.status < 500) return { error: { code: "unreachable", url: address, reason, retry: true } };
      throw Error(reason);
    } catch (error) {
      // A request with an id may have arrived all the same.
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
    close() {
      leave();
      for (const each of lone) each.abort();
    },

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

/** Return the position that a cursor names. @param {string | null | undefined} cursor `<epoch>:<offset>` */
function placeOf(cursor) {
  const [epoch, offset] = cursor?.split(":") ?? [];
  return offset ? { epoch, offset: Number(offset) } : undefined;
}

/**
 * Return the URL of a stream or a separate request. It is below the Socket.IO endpoint, because a proxy may lead no other path to the gateway.
 * @param {string} address origin and namespace
 * @param {string} path of the endpoint
 * @param {"stream" | "request"} name
 * @param {number} [waitS] how long a long-poll waits
 */
function streamOf(address, path, name, waitS) {
  return endpointOf(address, path, `${name}?namespace=${address.split("/").pop()}${waitS === undefined ? "" : `&wait=${waitS}`}`);
}
