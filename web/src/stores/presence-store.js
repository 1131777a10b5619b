/**
 * The store of the members of a topic: a room of headgate/presence, entered while the store has listeners.
 *
 * @import { PresenceSnapshot } from "../presence/members.js"
 * @import { PresenceOptions, Room } from "../presence/room.js"
 * @import { Source, Store } from "./snapshot-store.js"
 */
import { presence } from "../presence/index.js";
import { checkPayload, checkTopic, Gate } from "../index.js";
import { createStore } from "./snapshot-store.js";

/** @type {import("../language/options.js").Table} */
const OPTIONS = { enter: ["boolean"], meta: [""], enabled: ["boolean", true] };
/** @type {PresenceSnapshot} */
const NOBODY = Object.freeze({ members: Object.freeze([]), status: "waiting", error: null });

/**
 * @param {Gate} gate
 * @param {string | null} topic null: not known yet, as with `enabled: false`
 * @param {PresenceOptions & { enabled?: boolean }} [options]
 * @returns {Store<PresenceSnapshot> & { update: (meta: any) => void }} `update`: replace this user's `meta`, now and whenever the room is entered again
 * @throws {HeadgateError} `invalid_topic`
 * @throws {TypeError} an option that breaks its rule
 */
export function presenceStore(gate, topic, options = {}) {
  const { enabled, enter, meta } = Gate._optionsOf(gate, "presenceStore", OPTIONS, options);
  // Otherwise the error would come when the room is entered.
  if (meta !== undefined) checkPayload(meta);
  const wanted = topic === null || !enabled ? null : checkTopic(topic);
  /** @type {any} */
  let latestMeta = meta;
  let enters = enter;
  /** @param {() => void} changed @returns {Source<PresenceSnapshot> & { room?: Room }} */
  function begin(changed) {
    if (wanted === null) return { read: () => NOBODY, end() {} };
    try {
      const room = presence(gate, wanted, { enter: enters, meta: latestMeta });
      const unsubscribe = room.subscribe(changed);
      return {
        room,
        read: room.getSnapshot,
        end() {
          unsubscribe();
          room.close();
        },
      };
    } catch (/** @type {any} */ error) {
      const refused = Object.freeze({ ...NOBODY, status: /** @type {const} */ ("refused"), error });
      return { read: () => refused, end() {} };
    }
  }
  const store = createStore(NOBODY, begin);
  return {
    ...store,
    update(now) {
      store._source()?.room?.update(now);
      latestMeta = now;
      enters = true;
    },
  };
}
