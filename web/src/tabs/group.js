/**
 * The group: the tabs of one origin that may share a connection, as one of them sees it, and the leader among them, which has the connection.
 *
 * In: `enter`, `join`, `rest`, `leave` from the lane of this tab; messages of other tabs; the browser's events for locks and for the page's lifecycle. Out:
 * `led` and `orphaned` of the lane; in the leading tab, the hub and its connection.
 *
 * The browser grants the group's lock to one tab, and to the next one at once when that tab is closed, crashes or navigates away. A leader that has the
 * lock and does not answer, because it hangs or is stopped in a debugger, is detected by a `ping` without a `pong`, and loses the lock. A page that is
 * about to be frozen, or to enter the back/forward cache, gives it up by itself.
 *
 * Nothing depends on there being only one leader. One hub at a time carries each lane, which continues from its own position. Two leaders cost two
 * connections for a moment. A tab follows the leader that was the last to announce itself. A leader that wakes up without its lock steps down, and its
 * followers ask for the other one.
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
 * @property {number} [window] the most unacknowledged messages of a tab
 * @property {(event: string, act: () => void, watching: AbortController) => void} watch the page's lifecycle: pagehide, pageshow, freeze, resume
 *
 * @typedef {object} GroupOwner
 * @property {() => void} led there is a leader, or another one
 * @property {() => void} orphaned the leader is gone
 * @property {() => void} alone no tab will lead
 * @property {() => any} auth CONNECT's auth object, with the latest accepted token
 * @property {(owner: TransportOwner) => Transport} createPlain
 * @property {number} connectTimeoutMs from the attempt to the arrival of the welcome
 * @property {(role: "leading" | "following" | "alone") => void} changed
 */
import { POLL_MS } from "../connection/connection.js";
import { Machine } from "../base/machine.js";
import { MAX_DELAY_MS, startTimer } from "../base/timer.js";
import { WELCOME } from "../language/protocol.js";
import { Hub } from "./hub.js";
import { BYE, JOIN, LEAD, LEAVE, PING, PONG, PROBE, REQUEST, TOOK, WHO } from "./messages.js";

/**
 * A visible tab pings its leader this often, and replaces it after so many misses, which takes 0.6 to 0.9 s. If the leader is only busy, that costs a
 * connection, but no event. Browsers limit the timers of hidden tabs to one a second.
 */
const PING_MS = 300;
const HIDDEN_PING_MS = 1000;
const MISSES = 2;
/** How long a new leader waits for the positions of the present tabs. A tab that comes later may have to catch up alone. */
const GATHER_MS = 300;

/**
 * `out`: not entered, or the page has left (`rest`) · `seeking`: no leader is known.
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
  /** The leader that this tab follows, or this tab. @type {string | undefined} */
  let leader;
  /** @type {BroadcastChannel} */
  let all;
  /** Aborts the wait for the group's lock. */
  let candidacy = new AbortController();
  /** Releases the group's lock. */
  let release = () => {};
  /** Releases the lock of this tab. */
  let releaseSelf = () => {};
  /** @type {ReturnType<typeof createOffice> | undefined} */
  let office;
  /** The link of this tab's lane. @type {{ send: (message: any) => void } | undefined} */
  let ours;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let misses = 0;
  /** Whether the latest ping has no answer. */
  let waiting = false;
  let pingedMs = 0;
  let joins = 0;
  const watching = new AbortController();

  /** @param {Step} step */
  function take(step) {
    life.take(step);
    owner.changed(life.is("leading") ? "leading" : life.is("following") ? "following" : "alone");
  }

  /** @param {any} message */
  const toAll = (message) => all.postMessage(message);

  // The page's lifecycle.

  function enter() {
    if (!life.can("enter")) return;
    take("enter");
    all = new Channel(name);
    all.onmessage = ({ data }) => received(data);
    // Held as long as this tab lives, so that the leader notices its end.
    void locks.request(lockOf(me), () => {
      if (life.is("out", "left")) return;
      toAll({ type: WHO });
      stand();
      return new Promise((resolve) => {
        releaseSelf = () => resolve(undefined);
      });
      // The browser denies locks to this page, for example because cookies are blocked.
    }).catch(() => {
      exit("leave");
      owner.alone();
    });
    pingedMs = performance.now();
    timer = setTimeout(ping, pingMs());
  }

  /** The page leaves. Another tab must lead, and nothing of this one may keep it out of the back/forward cache. @param {"rest" | "leave"} step */
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
    // A frozen page keeps its lane, which waits for it. It must neither lead nor be the next leader.
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

  /** Wait for the group's lock, to lead next. @param {LockOptions} [how] */
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
      // Aborted, or stolen by a tab that got no answer from this one.
      .catch(() => mine === candidacy && resign());
  }

  function withdraw() {
    candidacy.abort();
  }

  async function lead() {
    take("lead");
    const was = leader;
    leader = me;
    office = createOffice();
    const mine = office;
    announce();
    // If another tab has carried the lane of this one, it continues here.
    owner.orphaned();
    owner.led();
    const there = await present();
    // Not for the previous leader, which may hang and would not join soon.
    if (office === mine) mine.begin(there.filter((tab) => tab !== was));
  }

  /** Return the present tabs. */
  async function present() {
    // In a frame of another site, Firefox grants locks but does not list them. The leader begins without the other tabs, and they join later.
    const { held = [] } = await locks.query().catch(() => /** @type {LockManagerSnapshot} */ ({}));
    return held.flatMap((lock) => (lock.name?.startsWith(lockOf("")) ? [lock.name.slice(lockOf("").length)] : []));
  }

  /** Another tab leads now, or should. */
  function depose() {
    take("depose");
    stepDown();
    seek();
  }

  /** The same, and this tab leads again after the others. */
  function resign() {
    if (!life.is("leading")) return;
    depose();
    stand();
  }

  /** Ask for a leader. */
  function seek() {
    leader = undefined;
    owner.orphaned();
    toAll({ type: WHO });
  }

  /** If this tab leads, close its office. */
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
  function received(message) {
    const { type } = message;
    if (type === WHO && office) announce();
    else if (type === LEAD) follow(message.leader);
    else if (type === BYE && message.leader === leader && life.offer("orphan")) seek();
    else if (type === JOIN && message.leader === me) office?.joined(message);
  }

  function announce() {
    toAll({ type: LEAD, leader: me });
  }

  /** @param {string} which */
  function follow(which) {
    // A leader that another one has replaced learns that from its lock.
    if (which === leader || !life.can("follow")) return;
    const was = leader;
    leader = which;
    take("follow");
    misses = 0;
    waiting = false;
    if (was) owner.orphaned();
    owner.led();
  }

  /** Count a missing answer, and ping the leader again. */
  function ping() {
    const nowMs = performance.now();
    // If this page was late itself, the answer may be waiting.
    const late = nowMs - pingedMs > 2 * pingMs();
    pingedMs = nowMs;
    timer = setTimeout(ping, pingMs());
    if (life.is("seeking")) toAll({ type: WHO });
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

  /** Join the hub of the leader with the lane of this tab. @param {any} wish @param {(message: any) => void} took @returns {Link | undefined} */
  function join(wish, took) {
    if (!leader || life.is("out", "left")) return;
    const link = office && leader === me ? office.local(wish, took) : remote(leader, wish, took);
    ours = link;
    waiting = false;
    return {
      post: link.send,
      close() {
        link.close();
        if (ours === link) ours = undefined;
      },
    };
  }

  /** @param {string} to @param {any} wish @param {(message: any) => void} took */
  function remote(to, wish, took) {
    const channel = new Channel(channelOf(to, me, ++joins));
    let open = true;
    channel.onmessage = ({ data }) => {
      misses = 0;
      waiting = false;
      if (data.type !== PONG) took(data);
    };
    toAll({ type: JOIN, leader: to, tab: me, nth: joins, wish });
    return {
      send: (/** @type {any} */ message) => open && channel.postMessage(message),
      close() {
        open = false;
        channel.close();
      },
    };
  }

  /** The office of a leader: the hub, its connection, and the channels to the tabs. */
  function createOffice() {
    /** @type {Map<string, { post: (message: any) => void, close: () => void }>} */
    const tabs = new Map();
    /** Present tabs not yet joined. @type {Set<string>} */
    let awaited = new Set();
    /** Whether the connection may be made. */
    let begun = false;
    /** Whether it exists or is being made. */
    let connected = false;
    /** @type {ReturnType<typeof setTimeout> | undefined} ends the wait for the tabs, the attempt to connect, or the connection to a gateway about to stop */
    let timer;

    const plain = owner.createPlain({
      greet: (send) => send({ ...owner.auth(), ...hub.greeting() }),
      arrived(message, args) {
        if (message === WELCOME) clearTimeout(timer);
        hub.arrived(message, args);
      },
      lost,
      refused(error) {
        down();
        hub.refused(error);
      },
    });
    const hub = new Hub({
      post: (tab, message) => tabs.get(tab)?.post(message),
      request: (request, body) => plain.request(request, body, MAX_DELAY_MS),
      move(reason, inS) {
        clearTimeout(timer);
        const go = () => {
          if (hub.unanswered) timer = startTimer(go, POLL_MS);
          else {
            plain.disconnect();
            down();
            hub.moved(reason);
          }
        };
        // At a random moment, so that the next gateway does not get all clients at once.
        timer = startTimer(go, Math.random() * inS * 1000);
      },
    }, window);

    /** @param {string} reason @param {number} [retryAfterS] */
    function lost(reason, retryAfterS) {
      down();
      hub.lost(reason, retryAfterS);
    }

    function down() {
      connected = false;
      clearTimeout(timer);
    }

    /** Connect if a tab needs it. */
    function dial() {
      if (!begun || connected || !tabs.size) return;
      connected = true;
      timer = startTimer(() => {
        plain.disconnect();
        lost("timeout");
      }, owner.connectTimeoutMs);
      plain.connect();
    }

    /** No tab is awaited. */
    function open() {
      clearTimeout(timer);
      awaited.clear();
      begun = true;
      dial();
    }

    /** @param {string} tab @param {{ post: (message: any) => void, close: () => void }} link @param {any} wish */
    function add(tab, link, wish) {
      tabs.get(tab)?.close();
      tabs.set(tab, link);
      hub.join(tab, wish);
      if (awaited.delete(tab) && !awaited.size) open();
      dial();
    }

    /** @param {string} tab @param {any} message */
    function took(tab, message) {
      const { type } = message;
      if (type === REQUEST) hub.ask(tab, message.id, message.name, message.body);
      else if (type === TOOK) hub.acknowledge(tab, message.count);
      else if (type === PING) tabs.get(tab)?.post({ type: PONG });
      else if (type === PROBE) plain.probe(message.spreadMs);
      else if (type === LEAVE) hub[message.full ? "drop" : "part"](tab);
    }

    /** @param {string} tab */
    function remove(tab) {
      hub.leave(tab);
      tabs.get(tab)?.close();
      tabs.delete(tab);
    }

    return {
      /** Make the connection once these tabs have joined, or after a moment. @param {string[]} present */
      begin(present) {
        awaited = new Set(present.filter((tab) => !tabs.has(tab)));
        if (awaited.size) timer = setTimeout(open, GATHER_MS);
        else open();
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
        // The tab holds its lock as long as it lives.
        locks.request(lockOf(tab), { signal: gone.signal }, () => remove(tab)).catch(() => {});
        add(tab, { post, close }, wish);
      },

      /** @param {any} wish @param {(message: any) => void} give */
      local(wish, give) {
        const later = (/** @type {() => void} */ act) => queueMicrotask(() => tabs.get(me) === link && act());
        const link = {
          send: (/** @type {any} */ message) => later(() => took(me, message)),
          post: (/** @type {any} */ message) => later(() => give(message)),
          close() {},
        };
        add(me, link, wish);
        return link;
      },

      close() {
        clearTimeout(timer);
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

    /** The gateway has refused this tab. Leave, so that no other one depends on its token, until it enters again. */
    rest: () => exit("rest"),

    leave() {
      exit("leave");
      watching.abort();
    },
  };
}
