/**
 * `connect` of `headgate/tabs`: one connection for all tabs of an origin and user. It returns the same gate as `connect` of `headgate`, over another transport.
 *
 * Tabs share if they have the same version of the protocol between tabs, the same address, path, `auth` and `user`, and tokens with the same user and grants.
 * Other pages of the origin can read the group's name, so it has no other part of a token than these claims.
 *
 * @import { TransportOwner, Transport } from "../transport/transport.js"
 * @import { ConnectOptions } from "../connect.js"
 * @import { HeadgateEvent } from "../gate.js"
 * @import { Platform } from "./group.js"
 *
 * @typedef {"leading" | "following" | "alone"} Role `alone`: no tab leads, or this one cannot share
 * @typedef {{ readonly role: Role, claim: (event: HeadgateEvent) => Promise<boolean> }} Tabs
 * @typedef {ConnectOptions & { user?: string }} TabsOptions
 */
import { claimsOf } from "../connection/token.js";
import { checkTopic, connect as connectAlone, Gate } from "../index.js";
import { createEventClaims } from "./event-claims.js";
import { createGroup } from "./group.js";
import { newId } from "../base/new-id.js";
import { createLane } from "./lane.js";
import { CONNECT_TIMEOUT_MS } from "../language/options.js";
import { VERSION } from "./messages.js";

/** Claims that differ between tokens of one user with the same rights. */
const OF_ONE_TOKEN = ["exp", "iat", "nbf", "jti"];

/**
 * Connect to a gateway over the connection that all tabs of this user share.
 * @param {string} [url] as for `connect` of `headgate`
 * @param {TabsOptions} [options] with `user`, which identifies the user if tokens are not JWTs
 * @returns {Gate & { readonly tabs: Tabs }} triggers `tabs:change` {role}
 */
export function connect(url, options) {
  return connectOn(platformOf(), url, options);
}

/**
 * The same, with a given platform.
 * @param {Platform | undefined} platform undefined: the browser cannot share
 * @param {string} [url] @param {TabsOptions} [given]
 * @returns {Gate & { readonly tabs: Tabs }}
 */
export function connectOn(platform, url, given = {}) {
  const { user, ...options } = Object(given);
  if (user !== undefined) Gate._check("connect: user", /./, user);
  /** @type {Role} */
  let role = "alone";
  /** @type {string | undefined} */
  let name;
  /** @type {ReturnType<typeof createEventClaims> | undefined} */
  let claims;

  /** @param {string} address @param {TransportOwner} owner @param {(owner: TransportOwner) => Transport} createPlain */
  function share(address, owner, createPlain) {
    const { connectTimeoutMs = CONNECT_TIMEOUT_MS } = options;
    /** @type {ReturnType<typeof createGroup> | undefined} */
    let group;
    const lane = createLane(owner, createPlain, {
      enter(auth) {
        const users = userOf(auth.token, user);
        const groupName = users && JSON.stringify(["headgate", VERSION, address, options.path, options.auth, ...users]);
        if (groupName !== name) {
          leave();
          name = groupName;
          group = groupName === undefined ? undefined : createGroup(groupName, { ...lane, createPlain, connectTimeoutMs, changed }, /** @type {Platform} */ (platform));
        }
        return Boolean(group?.enter());
      },
      window: platform?.window,
      connectTimeoutMs,
      join: (wish, take) => group?.join(wish, take),
      rest: () => group?.rest(),
      leave,
    });

    function leave() {
      group?.leave();
      group = undefined;
      claims?.close();
      claims = undefined;
    }
    return lane;
  }

  /** @param {Role} now */
  function changed(now) {
    if (now === role) return;
    role = now;
    gate.trigger("tabs:change", { role });
  }

  if (!platform) console.info("headgate: this page has no Web Locks or no BroadcastChannel: each tab has its own connection");
  // `connect` refuses options other than an object.
  const shared = Object(given) === given ? { ...options, share: platform && share } : given;
  const gate = connectAlone(url, shared);
  /** @type {Tabs} */
  const tabs = {
    get role() {
      return role;
    },
    async claim(event) {
      Gate._check("claim: event", "object", event);
      const { id, topic, time } = event;
      if (!id) checkTopic(topic);
      // Nothing would close the claims of a closed gate.
      if (gate.status === "closed") return false;
      if (!platform) return true;
      claims ??= createEventClaims(`${name ?? "headgate"}/claims`, platform);
      return claims.claim(id ?? `${topic} ${time}`);
    },
  };
  return Object.assign(gate, { tabs });
}

/** Return the platform; undefined: the browser cannot share. @returns {Platform | undefined} */
function platformOf() {
  const { BroadcastChannel } = globalThis;
  const locks = locksOf(BroadcastChannel);
  if (!locks) return;
  return {
    locks,
    BroadcastChannel,
    newId,
    watch(event, act, watching) {
      globalThis.addEventListener?.(event, act, watching);
      globalThis.document?.addEventListener(event, act, watching);
    },
  };
}

/** Return the Web Locks, if there are channels too. A page with an opaque origin gets an exception for either. @param {typeof BroadcastChannel} Channel */
function locksOf(Channel) {
  try {
    new Channel("headgate").close();
    return globalThis.navigator.locks;
  } catch {}
}

/**
 * Return what identifies a user and its rights; undefined: unknown, so the tab must not share.
 * @param {string | null | undefined} token @param {string | undefined} user
 */
function userOf(token, user) {
  if (!token) return [user];
  try {
    // Letters beyond ASCII stay encoded, because the claims are only compared.
    const lasting = Object.entries(claimsOf(token)).filter(([claim]) => !OF_ONE_TOKEN.includes(claim));
    return [user, lasting.sort(([one], [other]) => (one < other ? -1 : 1))];
  } catch {
    return user === undefined ? undefined : [user];
  }
}
