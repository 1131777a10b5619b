/**
 * `connect` of `headgate/tabs`: one connection for all tabs of an origin and user. It is that of `headgate`, and the gate that it returns is the
 * same one, over another transport.
 *
 * Tabs share if they are of one version of this package's protocol between tabs, one address, path and `auth`, one `user`, and if their tokens
 * say the same of the user and the grants. No part of a token but these claims is in the group's name, which other pages of the origin can read.
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
import { VERSION } from "./messages.js";

/** Claims that differ from token to token of one user with the same rights. */
const OF_ONE_TOKEN = ["exp", "iat", "nbf", "jti"];

/**
 * Connect to a gateway, over the connection that all tabs of this user share.
 * @param {string} [url] as `connect` of `headgate`
 * @param {TabsOptions} [options] and `user`: identifies the user if tokens are not JWTs
 * @returns {Gate & { readonly tabs: Tabs }} triggers `tabs:change` {role}
 */
export function connect(url, options) {
  return connectOn(platformOf(), url, options);
}

/**
 * The same, in a given browser.
 * @param {Platform | undefined} platform undefined: it cannot share
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
    /** @type {ReturnType<typeof createGroup> | undefined} */
    let group;
    const lane = createLane(owner, createPlain, {
      enter(auth) {
        const users = userOf(auth.token, user);
        const found = users && JSON.stringify(["headgate", VERSION, address, options.path, options.auth, ...users]);
        if (found !== name) {
          leave();
          name = found;
          group = found === undefined ? undefined : createGroup(found, { ...lane, createPlain, changed }, /** @type {Platform} */ (platform));
        }
        return Boolean(group?.enter());
      },
      window: platform?.window,
      join: (wish, take) => group?.join(wish, take),
      resign: () => group?.resign(),
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
  // What is no object is refused there.
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
      // It would open what nothing closes.
      if (gate.status === "closed") return false;
      if (!platform) return true;
      claims ??= createEventClaims(`${name ?? "headgate"}/claims`, platform);
      return claims.claim(id ?? `${topic} ${time}`);
    },
  };
  return Object.assign(gate, { tabs });
}

/** Return what the browser has for this; undefined: not all of it. @returns {Platform | undefined} */
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

/** Return the Web Locks, if there are both they and channels: a page without an origin of its own may not even ask. @param {typeof BroadcastChannel} Channel */
function locksOf(Channel) {
  try {
    new Channel("headgate").close();
    return globalThis.navigator.locks;
  } catch {}
}

/**
 * Return what identifies a user and its rights; undefined without it, and then the tab must not share.
 * @param {string | null | undefined} token @param {string | undefined} user
 */
function userOf(token, user) {
  if (!token) return [user];
  try {
    // Letters beyond ASCII stay as they are encoded: they are only compared.
    const lasting = Object.entries(claimsOf(token)).filter(([claim]) => !OF_ONE_TOKEN.includes(claim));
    return [user, lasting.sort(([one], [other]) => (one < other ? -1 : 1))];
  } catch {
    return user === undefined ? undefined : [user];
  }
}
