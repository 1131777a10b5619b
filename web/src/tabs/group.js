/**
 * The group: the tabs of one origin that may share a connection, as one of them sees it; and the leader among them, which has the connection.
 *
 * In: `enter`, `join`, `resign`, `leave` from the lane of this tab; messages of other tabs; what the browser reports of locks and of the page's
 * life. Out: `led` and `orphaned` of the lane; in the leading tab, the hub and its connection.
 *
 * The browser grants the group's lock to one tab, and to the next at once when that one is closed, crashes or goes elsewhere. A leader that
 * holds the lock and does not answer (it hangs, or stands in a debugger) is noticed by a `ping` without a `pong`, and loses the lock. A page
 * that is about to be frozen, or to go into the back/forward cache, gives up by itself.
 *
 * Nothing depends on there being one leader: each lane is carried by one hub at a time, and goes on from its own position. Two leaders
 * cost two connections for a moment. A leader has a term, above any that it has heard of, so that all tabs agree on the newest, and an
 * older one that wakes up steps down.
 *
 * @import { Transport, TransportOwner } from "../transport/transport.js"
 * @import { Link } from "./lane.js"
 * @typedef {"out" | "seeking" | "following" | "leading" | "left"} GroupState
 * @typedef {"enter" | "follow" | "orphan" | "lead" | "depose" | "rest" | "leave"} Step
 *
 * @typedef {object} Platform of the browser
 * @property {LockManager} locks
 * @property {typeof BroadcastChannel} BroadcastChannel
 * @property {() => string} newId
 * @property {number} [window] messages that a tab may have and not have acknowledged
 * @property {(event: string, act: () => void, watching: AbortController) => void} watch the page's life: pagehide, pageshow, freeze, resume
 *
 * @typedef {object} GroupOwner
 * @property {() => void} led there is a leader, or another one
 * @property {() => void} orphaned the leader is gone
 * @property {() => void} alone no tab will lead
 * @property {() => any} auth CONNECT's auth object, with a token that the gateway should take
 * @property {(owner: TransportOwner) => Transport} createPlain
 * @property {(role: "leading" | "following" | "alone") => void} changed
 */
import { Machine } from "../base/machine.js";
import { MAX_DELAY_MS, startTimer } from "../base/timer.js";
import { Hub } from "./hub.js";
import { BYE, JOIN, LEAD, LEAVE, PING, PONG, REQUEST, TOOK, WHO } from "./messages.js";

/**
 * A visible tab asks its leader for a sign of life this often, and takes it for dead after so many without an answer: 0.6 to 0.9 s. A leader
 * whose page is only busy for so long loses no event by it, and costs a connection. Hidden tabs have a timer a second.
 */
const PING_MS = 300;
const HIDDEN_PING_MS = 1000;
const MISSES = 2;
/** How long a new leader waits for the present tabs to name their positions: a later one may have to catch up alone. */
const GATHER_MS = 300;

/**
 * `out`: not begun, or the page is frozen · `seeking`: no leader is known.
 * @type {Record<GroupState, Partial<Record<Step, GroupState>>>}
 */
export const GROUP = {
  out: { enter: "seeking", leave: "left" },
  seeking: { follow: "following", lead: "leading", rest: "out", leave: "left" },
  following: { follow: "following", orphan: "seeking", lead: "leading", rest: "out", leave: "left" },
  leading: { depose: "seeking", rest: "out", leave: "left" },
  left: {},
};

/** @param {string} name of the group @param {GroupOwner} owner @param {Platform} platform */
export function createGroup(name, owner, { locks, BroadcastChannel: Channel, newId, watch, window }) {
  const me = newId();
  const life = new Machine(GROUP, "out");
  /** The newest known leader, and the highest term ever heard of. @type {string | undefined} */
  let leader;
  let term = 0;
  /** @type {BroadcastChannel} */
  let all;
  /** The wait for the lock; releases the lock once it is held. */
  let candidacy = new AbortController();
  let release = () => {};
  let releaseSelf = () => {};
  /** @type {ReturnType<typeof createOffice> | undefined} */
  let office;
  /** The link of this tab's lane. @type {{ send: (message: any) => void } | undefined} */
  let ours;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let misses = 0;
  let waiting = false;
  let lookedMs = 0;
  let joins = 0;
  const watching = new AbortController();

  /** @param {Step} step */
  function take(step) {
    life.take(step);
    owner.changed(life.is("leading") ? "leading" : life.is("following") ? "following" : "alone");
  }

  /** @param {any} message */
  const toAll = (message) => all.postMessage(message);

  // The page's life.

  function enter() {
    if (!life.can("enter")) return;
    take("enter");
    all = new Channel(name);
    all.onmessage = ({ data }) => heard(data);
    // Held for the life of this tab, so that the leader notices its end.
    void locks.request(lockOf(me), () => {
      if (life.is("out", "left")) return;
      toAll({ type: WHO, term });
      stand();
      return new Promise((resolve) => {
        releaseSelf = () => resolve(undefined);
      });
      // The browser denies this page locks, as where cookies are blocked.
    }).catch(() => {
      exit("leave");
      owner.alone();
    });
    lookedMs = performance.now();
    timer = setTimeout(look, pingMs());
  }

  /** The page will be frozen, or is going: another tab leads, and nothing of this one is in the way of the back/forward cache. @param {"rest" | "leave"} step */
  function exit(step) {
    if (!life.can(step)) return;
    take(step);
    clearTimeout(timer);
    withdraw();
    stepDown();
    releaseSelf();
    leader = undefined;
    all?.close();
    ours = undefined;
    if (step === "rest") owner.orphaned();
  }

  function watchPage() {
    watch("pagehide", () => exit("rest"), watching);
    watch("pageshow", enter, watching);
    // A frozen page keeps its lane, which waits for it. It must neither lead nor be next.
    watch(
      "freeze",
      () => {
        withdraw();
        if (life.is("leading")) depose();
      },
      watching,
    );
    watch("resume", () => stand(), watching);
  }

  // Who leads.

  /** Be the next to lead. @param {LockOptions} [how] */
  function stand(how) {
    withdraw();
    if (life.is("out", "left", "leading")) return;
    const mine = new AbortController();
    candidacy = mine;
    const options = how ?? { signal: mine.signal };
    locks
      .request(name, options, () => {
        if (mine.signal.aborted || life.is("out", "left")) return;
        const held = new Promise((resolve) => {
          release = () => resolve(undefined);
        });
        void lead();
        return held;
      })
      // Aborted, or stolen by a tab that had no answer from this one.
      .catch(() => mine === candidacy && life.is("leading") && depose());
  }

  function withdraw() {
    candidacy.abort();
  }

  async function lead() {
    take("lead");
    term++;
    const was = leader;
    leader = me;
    office = createOffice();
    const mine = office;
    announce(term);
    // The lane of this tab, if another carried it, goes on here.
    owner.orphaned();
    owner.led();
    // A tab that hangs and has lost the lock will not join soon, so no one waits for it.
    const there = (await present()).filter((tab) => tab !== was);
    await Promise.race([mine.gathered(there), new Promise((resolve) => setTimeout(resolve, GATHER_MS))]);
    if (office === mine) mine.begin();
  }

  /** Return which tabs are there. */
  async function present() {
    // Firefox grants a frame of another site locks, and does not list them. Its leader begins without the others, and they join later.
    const { held = [] } = await locks.query().catch(() => /** @type {LockManagerSnapshot} */ ({}));
    return held.flatMap((lock) => (lock.name?.startsWith(lockOf("")) ? [lock.name.slice(lockOf("").length)] : []));
  }

  /** Another tab leads now, or should. */
  function depose() {
    take("depose");
    stepDown();
    leader = undefined;
    owner.orphaned();
    toAll({ type: WHO, term });
  }

  /** End what a leader has, if this is one. */
  function stepDown() {
    if (!office) return;
    toAll({ type: BYE, leader: me });
    const ended = office;
    office = undefined;
    ended.close();
    release();
  }

  const pingMs = () => (globalThis.document?.hidden ? HIDDEN_PING_MS : PING_MS);

  /** @param {any} message of any tab */
  function heard(message) {
    const { type } = message;
    if (type === WHO && office) announce(message.term);
    else if (type === LEAD) follow(message);
    else if (type === BYE && message.leader === leader && life.is("following")) orphan();
    else if (type === JOIN && message.leader === me) office?.joined(message);
  }

  /** Say that this tab leads, in a term above any that a tab has heard of. @param {number} heardOf */
  function announce(heardOf) {
    if (heardOf > term) term = heardOf + 1;
    toAll({ type: LEAD, term, leader: me });
  }

  /** @param {{ term: number, leader: string }} message */
  function follow({ term: of, leader: which }) {
    // A leader that came after the others had gone.
    if (of < term && life.is("seeking")) toAll({ type: WHO, term });
    if (of < term || which === leader || (of === term && leader && which < leader)) return;
    const was = leader;
    term = of;
    if (life.is("leading")) {
      depose();
      stand();
    }
    if (!life.can("follow")) return;
    leader = which;
    take("follow");
    misses = 0;
    waiting = false;
    if (was) owner.orphaned();
    owner.led();
  }

  function orphan() {
    take("orphan");
    leader = undefined;
    owner.orphaned();
    // One that leads already may have been taken for an older one.
    toAll({ type: WHO, term });
  }

  /** Ask the leader for a sign of life, and look whether the last one came. */
  function look() {
    const nowMs = performance.now();
    // A page that was late itself has missed what came in between.
    const late = nowMs - lookedMs > 2 * pingMs();
    lookedMs = nowMs;
    timer = setTimeout(look, pingMs());
    if (life.is("seeking")) toAll({ type: WHO, term });
    if (!life.is("following") || !ours) return;
    misses = waiting && !late ? misses + 1 : 0;
    if (misses >= MISSES) {
      misses = 0;
      waiting = false;
      return stand({ steal: true });
    }
    waiting = true;
    ours.send({ type: PING });
  }

  // Lanes.

  /** The lane of this tab, from the hub of the leader. @param {any} wish @param {(message: any) => void} took @returns {Link | undefined} */
  function join(wish, took) {
    if (!leader || life.is("out", "left")) return;
    const link = office && leader === me ? office.local(wish, took) : remote(leader, wish, took);
    ours = link;
    waiting = false;
    return { post: link.send, close: () => link.close() };
  }

  /** @param {string} to @param {any} wish @param {(message: any) => void} took */
  function remote(to, wish, took) {
    const channel = new Channel(channelOf(to, me, ++joins));
    let open = true;
    channel.onmessage = ({ data }) => {
      if (!open) return;
      misses = 0;
      waiting = false;
      if (data.type !== PONG) took(data);
    };
    toAll({ type: JOIN, leader: to, tab: me, nth: joins, wish });
    const link = {
      send: (/** @type {any} */ message) => open && channel.postMessage(message),
      close() {
        open = false;
        channel.close();
        if (ours === link) ours = undefined;
      },
    };
    return link;
  }

  /** What a leader has: the hub, its connection, and the channels to the tabs. */
  function createOffice() {
    /** @type {Map<string, { post: (message: any) => void, close: () => void }>} */
    const tabs = new Map();
    /** @type {Set<string>} */
    const awaited = new Set();
    let allThere = () => {};
    let begun = false;
    let wanted = false;
    /** The connection is there or under way. */
    let connected = false;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let moving;

    const plain = owner.createPlain({
      greet: (send) => send({ ...owner.auth(), ...hub.greeting() }),
      arrived: (message, args) => hub.arrived(message, args),
      lost(reason, retryAfterS) {
        down();
        hub.lost(reason, retryAfterS);
      },
      refused(error) {
        down();
        hub.refused(error);
      },
    });
    const hub = new Hub({
      post: (tab, message) => tabs.get(tab)?.post(message),
      request: (request, body) => plain.request(request, body, MAX_DELAY_MS),
      connect: dial,
      move(reason, inS) {
        clearTimeout(moving);
        // Anywhere in the time given, so that the next gateway does not get every client at once.
        moving = startTimer(() => {
          plain.disconnect();
          down();
          hub.moved(reason);
        }, Math.random() * inS * 1000);
      },
    }, window);

    function down() {
      connected = false;
      clearTimeout(moving);
    }

    function dial() {
      wanted = true;
      if (!begun || connected) return;
      wanted = false;
      connected = true;
      plain.connect();
    }

    /** @param {string} tab @param {{ post: (message: any) => void, close: () => void }} link @param {any} wish */
    function add(tab, link, wish) {
      tabs.get(tab)?.close();
      tabs.set(tab, link);
      hub.join(tab, wish);
      awaited.delete(tab);
      if (!awaited.size) allThere();
      dial();
    }

    /** @param {string} tab @param {any} message */
    function took(tab, message) {
      const { type } = message;
      if (type === REQUEST) hub.ask(tab, message.id, message.name, message.body);
      else if (type === TOOK) hub.acknowledge(tab, message.count);
      else if (type === PING) tabs.get(tab)?.post({ type: PONG });
      else if (type === LEAVE) hub[message.full ? "drop" : "part"](tab);
    }

    /** @param {string} tab */
    function remove(tab) {
      hub.leave(tab);
      tabs.get(tab)?.close();
      tabs.delete(tab);
    }

    return {
      /** Wait until each of these tabs has joined. @param {string[]} present */
      gathered(present) {
        for (const tab of present) if (!tabs.has(tab)) awaited.add(tab);
        return awaited.size ? new Promise((resolve) => (allThere = () => resolve(undefined))) : undefined;
      },

      /** The connection may be made. */
      begin() {
        begun = true;
        if (wanted) dial();
      },

      /** @param {any} message of another tab */
      joined({ tab, nth, wish }) {
        const channel = new Channel(channelOf(me, tab, nth));
        const gone = new AbortController();
        channel.onmessage = ({ data }) => took(tab, data);
        const post = (/** @type {any} */ message) => channel.postMessage(message);
        const close = () => {
          gone.abort();
          channel.close();
        };
        // The tab holds it for as long as it is there.
        locks.request(lockOf(tab), { signal: gone.signal }, () => remove(tab)).catch(() => {});
        add(tab, { post, close }, wish);
      },

      /** @param {any} wish @param {(message: any) => void} give */
      local(wish, give) {
        let open = true;
        const later = (/** @type {() => void} */ act) => queueMicrotask(() => open && act());
        const link = {
          send: (/** @type {any} */ message) => later(() => took(me, message)),
          post: (/** @type {any} */ message) => later(() => give(message)),
          close() {
            open = false;
            if (ours === link) ours = undefined;
            if (tabs.get(me) === link) hub.part(me);
          },
        };
        add(me, link, wish);
        return link;
      },

      close() {
        clearTimeout(moving);
        plain.close();
        for (const { close } of tabs.values()) close();
        tabs.clear();
      },
    };
  }

  /** The lock that a tab holds. @param {string} tab */
  const lockOf = (tab) => `${name}/tab/${tab}`;
  /** The channel of one lane. @param {string} to @param {string} tab @param {number} nth of the tab's */
  const channelOf = (to, tab, nth) => `${name}/${to}/${tab}/${nth}`;

  watchPage();
  return {
    /** Return whether this tab can share. */
    enter() {
      enter();
      return !life.is("left");
    },
    join,

    /** The gateway refuses this tab: another should lead. */
    resign() {
      if (!life.is("leading")) return;
      depose();
      stand();
    },

    leave() {
      exit("leave");
      watching.abort();
    },
  };
}
